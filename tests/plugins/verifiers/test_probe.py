"""The raw probe of the llama verifier, and a certification of the real model through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pilotfish.daemon.certify.certificate import Certificate, identity_of
from pilotfish.daemon.certify.certifier import Certifier
from pilotfish.daemon.certify.lanes import MAX_WIDTH, Site, classes
from pilotfish.daemon.certify.probe_driver import Deadline, Material, ProbeDriver
from pilotfish.daemon.certify.task import CertificationTask
from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.protocols import CertifiableVerifier, Probe
from pilotfish.hooks.types import EngineOptions, EngineSetting, TargetPin
from tests.engines import VERIFIERS

pytestmark = pytest.mark.model

EXACT = EngineSetting("bf16", "f16")
EXACT_ON = {"llama": EXACT, "ik": EngineSetting("f16", "f16", flash_attention=False, engine="ik")}
STOCK = EngineSetting("f16", "f16")

OpenProbe = Callable[..., Probe]


@pytest.fixture
def probe_of(smollm2_path: Path, pin_of: Callable[[Path], TargetPin]) -> Iterator[OpenProbe]:
    opened: list[Probe] = []

    def open_probe(
        setting: EngineSetting, path: Path = smollm2_path, threads: int = 2, verifier: str = "llama"
    ) -> Probe:
        options = EngineOptions(n_ctx=512, threads=threads)
        opened.append(VERIFIERS[verifier]().probe(pin_of(path), setting, MAX_WIDTH, options))
        return opened[-1]

    yield open_probe
    for probe in opened:
        probe.close()


def test_the_verifier_can_be_certified_and_knows_its_build_without_loading(probe_of: OpenProbe, verifier: str) -> None:
    built = VERIFIERS[verifier]()
    assert isinstance(built, CertifiableVerifier)
    assert built.fingerprint(None) == probe_of(EXACT_ON[verifier], verifier=verifier).engine.fingerprint


def test_a_file_that_is_no_model_is_refused(tmp_path: Path, probe_of: OpenProbe, verifier: str) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(BrokenModel, match=r"broken\.gguf"):
        probe_of(EXACT_ON[verifier], path, verifier=verifier)


def test_digests_tell_equal_rows_from_others_and_cuts_take_back(probe_of: OpenProbe, verifier: str) -> None:
    probe = probe_of(EXACT_ON[verifier], verifier=verifier)
    ids = probe.encode("The quick brown fox jumps over the lazy dog")
    probe.feed(ids[:4])
    first = probe.rows(ids[4:7], 3)
    assert len(set(first)) == 3
    assert probe.cut(4)
    assert probe.rows(ids[4:7], 3) == first
    assert probe.cut(4)
    assert probe.rows(ids[4:6], 4)[:2] == first[:2]  # padded
    assert probe.cut(4)
    assert probe.rows([ids[5], ids[4]], 2) != first[:2]


def test_the_exact_setting_is_one_class_past_256_cells_and_stock_is_not(probe_of: OpenProbe) -> None:
    site = Site(0, 264, 8)

    def seen(setting: EngineSetting) -> tuple[tuple[int, ...], ...]:
        probe = probe_of(setting)
        driver = ProbeDriver(probe, Material(probe.n_vocab, []), Deadline(200))
        return classes({width: driver.walk(site, width) for width in (1, 2, 8)})

    assert seen(EXACT) == ((1, 2, 8),)
    assert seen(STOCK) == ((1,), (2, 8))  # the negative control: a comparison that could not fail proves nothing


def test_a_certification_of_the_real_model_finds_one_class(
    smollm2_path: Path, pin_of: Callable[[Path], TargetPin], probe_of: OpenProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = (1, 2, 8)  # every width takes a minute on two cores; the command tries them all
    monkeypatch.setattr("pilotfish.daemon.certify.survey.ALL_WIDTHS", few)
    monkeypatch.setattr("pilotfish.daemon.certify.pricing.COST_WIDTHS", few)
    monkeypatch.setattr("pilotfish.daemon.certify.evidence.TARGET_ROWS", 24)
    monkeypatch.setattr("pilotfish.daemon.certify.evidence.SITE_ROWS", 24)
    for name, value in (("REPEATS", 1), ("PREFILL", 64), ("PREFILL_REPEATS", 1)):
        monkeypatch.setattr(f"pilotfish.daemon.certify.measure.{name}", value)
    monkeypatch.setattr("pilotfish.daemon.certify.survey.SWITCH_POINTS_SHARE", 0.01)
    tolerance = "pilotfish.daemon.certify.lanes.PLAIN_TOLERANCE"
    monkeypatch.setattr(tolerance, 10.0)  # a busy machine's timings must not decide
    options = EngineOptions(n_ctx=512, threads=1)  # with one, stock's attention never splits: no switch to find
    identity = identity_of(pin_of(smollm2_path), {"llama": "build"}, options)
    task = CertificationTask(identity, "smollm2:135m", options, text="Once upon a time.")
    certificate: Certificate = Certifier(task, lambda setting, deadline: probe_of(setting, threads=1), budget=400).run()
    assert certificate.lane.widths == few
    assert certificate.lane.exact_cache
    assert certificate.lane.max_context == 512
    assert certificate.complete
