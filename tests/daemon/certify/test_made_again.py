"""Certificates that time cut short are made again in later idle moments, a few times, and never for the worse."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.daemon.certify import background
from pilotfish.daemon.certify.certificate import Certificate, CertificateStore, Identity, identity_of
from pilotfish.daemon.certify.lookup import LaneLookup
from pilotfish.daemon.certify.made_again import MOST_TRIES, MadeAgain
from pilotfish.daemon.lab.fakes import fake_pin
from pilotfish.daemon.runner.loading import _worth_certifying
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, EngineSetting, Lane, Parity, TargetPin, WeightPin
from pilotfish.manifests.remembered import SETTLED_SECONDS
from tests.fakes.measured import certificate_of

IDENTITY = Identity(("sha256:1",), (("llama", "build"),), "here", None, None, None, None, None, ())
OUT = ("cells depend on the block", "time ran out", "compared up to 300 of 1024 tokens of context")
BF16 = EngineSetting("bf16", "f16")


def cut(reach: int, *, widths: tuple[int, ...] = (1, 2, 3), setting: EngineSetting = BF16, **about) -> Certificate:
    """One whose lane ends at `reach` of 1,024 tokens because time ran out."""
    lane = Lane("lane", widths, setting, max_context=reach)
    return certificate_of(IDENTITY, lane, **{"complete": False, "findings": OUT, **about})


def test_a_lane_that_ends_before_the_context_because_of_time_is_cut_short() -> None:
    assert cut(300).cut_short
    assert not cut(1024).cut_short  # what it lacks is rows, not context
    assert not replace(cut(300), complete=True).cut_short


def test_what_only_looked_at_less_replaces_nothing() -> None:
    known = cut(600)
    assert cut(300).only_less_than(known)
    assert cut(300, widths=(1, 2, 3, 4)).only_less_than(known)
    assert cut(300, setting=EngineSetting(engine="ik")).only_less_than(known)
    assert not cut(900).only_less_than(known)
    assert not cut(1024).only_less_than(known)


def test_whatever_speaks_against_a_certificate_replaces_it() -> None:
    known = cut(600)
    assert not cut(300, widths=(1, 2)).only_less_than(known)
    found = "widths 2-3 differ after 300 tokens: the lane ends before"
    assert not cut(300, findings=(*OUT, found)).only_less_than(known)
    assert not replace(cut(300), complete=True).only_less_than(known)
    assert not cut(300).only_less_than(replace(known, unmeasured=("ik",)))


@pytest.fixture
def pin(tmp_path: Path) -> TargetPin:
    path = tmp_path / "weights.gguf"
    path.write_bytes(b"weights")
    time.sleep(2 * SETTLED_SECONDS)  # before, nothing is remembered about it
    return replace(fake_pin(), weights=(WeightPin("sha256:1", path, 7),))


def test_a_load_asks_for_another_try_until_there_were_enough(tmp_path: Path, pin: TargetPin) -> None:
    def worth(made: Certificate) -> bool:
        return _worth_certifying(LaneLookup((), certificate=made, identity=IDENTITY), 60.0, pin, tmp_path)

    assert worth(cut(300, seconds=60.0))
    assert not worth(cut(1024, seconds=60.0))
    for _ in range(MOST_TRIES):
        assert worth(cut(300, seconds=10.0))
        MadeAgain(tmp_path, pin.path, IDENTITY.key).tried()
    assert not worth(cut(300, seconds=10.0))


class Certifiable:
    """A verifier that loads nothing."""

    name = "llama"

    def fingerprint(self, state_dir: Path | None) -> str:
        return "build"

    def load(self, *arguments: object) -> None: ...

    def probe(self, *arguments: object) -> None: ...


def in_background(monkeypatch, pin: TargetPin, options: EngineOptions, certify) -> int:
    """The exit code of the process that certifies."""
    monkeypatch.setattr("pilotfish.daemon.certify.certification.certify", certify)
    monkeypatch.setattr(background, "fit_verifiers", lambda *given: (Certifiable(),))
    return background._certify(background.json.loads(background.job_line(pin, options, Parity.LANE, ["llama"], 60.0)))


@pytest.mark.parametrize(("conclusive", "code"), [(True, 1), (False, background.OUT_OF_TIME)])
def test_whether_more_time_may_bring_a_certificate_is_told(monkeypatch, tmp_path, pin, conclusive: bool, code: int):
    found = replace(cut(300), conclusive=conclusive)
    options = EngineOptions(state_dir=tmp_path)
    assert in_background(monkeypatch, pin, options, lambda *given, **named: (found, None)) == code


@pytest.mark.parametrize("fails", [False, True])
def test_a_try_that_ended_counts_whatever_came_of_it(monkeypatch, tmp_path: Path, pin: TargetPin, fails: bool) -> None:
    options = EngineOptions(state_dir=tmp_path)
    identity = identity_of(pin, {"llama": "build"}, options)
    known = replace(cut(300), identity=identity)
    CertificateStore(tmp_path).put(known)
    given = []

    def certify(*arguments, known, **named):
        given.append(known)
        if fails:
            raise EngineError("the probe died")
        return replace(known, conclusive=False), None

    try:
        assert in_background(monkeypatch, pin, options, certify) == 1
    except EngineError:
        assert fails
    assert given == [known]
    assert MadeAgain(tmp_path, pin.path, identity.key).tries == 1
