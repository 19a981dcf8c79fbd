"""What is prepared before the first measurement: the certificate the measured runners find."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pilotfish.daemon.certify.certificate import CertificateStore
from pilotfish.daemon.certify.lookup import Attempt, LaneLookup
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.lab import bench_bed
from pilotfish.daemon.lab.bench_systems import Bed
from pilotfish.hooks.errors import EngineError


@pytest.fixture
def scene(tmp_path, monkeypatch):
    """No engine: what the lookup finds and what certifying gives are the test's."""
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))
    scene = SimpleNamespace(found=LaneLookup((Attempt(None),), identity="identity"), made=None, options=None, kept=[])
    verifier = SimpleNamespace(verifier=lambda name: scene if name == "llama" else None)
    monkeypatch.setattr(bench_bed.Registry, "load", lambda config: verifier)
    monkeypatch.setattr(bench_bed, "pin_file", lambda path, state: SimpleNamespace(name="m"))
    monkeypatch.setattr(bench_bed, "find_lane", lambda *args: scene.found)
    monkeypatch.setattr(CertificateStore, "put", lambda self, certificate: scene.kept.append(certificate))

    def certify(pin, verifier, options, *, parity, progress):
        scene.options = options
        progress("half done")
        if scene.made is None:
            raise EngineError("no probe")
        return scene.made, None

    monkeypatch.setattr(bench_bed, "certify", certify)
    return scene


def bring(tmp_path, make=True, said=None):
    report = said.append if said is not None else lambda what: None
    bed = Bed(tmp_path / "m.gguf", "m", 2, 512, Config(), tmp_path, tmp_path / "state")
    return bench_bed.bring_certificates(bed, ["llama"], make=make, report=report)["llama"]


def certificate(text: str):
    return SimpleNamespace(summary=lambda: text)


def test_the_users_certificate_is_handed_to_the_measured_runners(scene, tmp_path):
    mine = certificate("widths 1-16")
    scene.found = LaneLookup((Attempt(None),), certificate=mine)
    assert bring(tmp_path) == "widths 1-16"
    assert scene.kept == [mine]


def test_a_missing_one_is_made_for_exactly_this_launch(scene, tmp_path):
    scene.made = certificate("widths 1-8")
    said: list[str] = []
    assert bring(tmp_path, said=said) == "widths 1-8"
    assert (scene.options.n_ctx, scene.options.threads) == (512, 2)
    assert said == ["certifying for llama: half done"]
    assert scene.kept == [scene.made]


def test_a_model_that_cannot_be_certified_is_measured_all_the_same(scene, tmp_path):
    assert bring(tmp_path) == "not certified: no probe"
    assert bring(tmp_path, make=False) == "not certified; the lane is the one found at load"
    scene.found = LaneLookup((Attempt(None),))
    assert bring(tmp_path) == "not certified; the lane is the one found at load"
    assert scene.kept == []
