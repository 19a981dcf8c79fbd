"""What a load finds out before it loads an engine: its lane, which engine computes, and nothing that measures."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.daemon.certify.certificate import CertificateStore, identity_of
from pilotfish.daemon.certify.lookup import find_lane
from pilotfish.daemon.certify.suitability import Suitability
from pilotfish.daemon.lab.fakes.fake_engine import fake_pin
from pilotfish.hooks.protocols import Probe, TargetEngine
from pilotfish.hooks.types import EngineOptions, EngineSetting, Lane, Parity, TargetPin, WeightPin
from pilotfish.manifests.remembered import SETTLED_SECONDS
from tests.fakes.measured import certificate_of

IMPORTED = """
import json, sys
import pilotfish.daemon.certify.lookup
print(json.dumps(sorted(sys.modules)))
"""


def test_a_load_imports_neither_the_certifier_nor_the_lab() -> None:
    modules = json.loads(subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, check=True).stdout)
    assert "pilotfish.daemon.certify.certificate" in modules
    measuring = ("pilotfish.daemon.certify.certif", "pilotfish.daemon.lab", "numpy")
    assert [name for name in modules if name.startswith(measuring)] == ["pilotfish.daemon.certify.certificate"]


class Engine:
    """A verifier whose models can be certified; loads nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def fingerprint(self, state_dir: Path | None) -> str:
        return f"build of {self.name}"

    def load(self, pin: TargetPin, lane: Lane | None, options: EngineOptions) -> TargetEngine:
        raise AssertionError("nothing here loads")

    def probe(self, pin: TargetPin, setting: EngineSetting, max_width: int, options: EngineOptions) -> Probe:
        raise AssertionError("nothing here is probed")


LLAMA, IK = Engine("llama"), Engine("ik")
BUILDS = {engine.name: engine.fingerprint(None) for engine in (LLAMA, IK)}
QWEN = replace(
    fake_pin(),
    weights=(WeightPin("sha256:" + "2" * 64, Path("/nowhere"), 1000),),
    architecture="qwen2",
    quantization="Q4_K_M",
)


@pytest.fixture
def options(tmp_path: Path) -> EngineOptions:
    return EngineOptions(state_dir=tmp_path)


def order(options: EngineOptions, pin: TargetPin = QWEN, parity: Parity = Parity.LANE) -> list[str]:
    found = find_lane(pin, (LLAMA, IK), options, parity)
    return [attempt.verifier.name for attempt in found.attempts]


def keep(options: EngineOptions, winner: str, builds: Mapping[str, str] = BUILDS, **about: object) -> None:
    """A certificate of another model that `winner` won."""
    facts = {"architecture": "qwen2", "quantization": "Q4_K_M", "size": 1000, **about}
    other = replace(QWEN, weights=(WeightPin(f"sha256:{len(list(options.state_dir.rglob('*')))}", Path("/other"), 1),))
    lane = Lane("lane", (1, 2, 3), EngineSetting(engine=winner))
    made = certificate_of(identity_of(other, builds, options), lane, model=f"{winner}'s model", **facts)
    assert CertificateStore(options.state_dir).put(made)


def test_nothing_is_known_and_libllama_is_tried_first(options: EngineOptions) -> None:
    assert order(options) == ["llama", "ik"]


def test_the_engine_that_won_for_a_model_alike_is_tried_first(options: EngineOptions) -> None:
    keep(options, "ik", architecture="gemma3")
    assert order(options) == ["llama", "ik"]
    keep(options, "ik", quantization="Q4_0")
    assert order(options) == ["ik", "llama"]
    keep(options, "llama")
    assert order(options) == ["llama", "ik"]  # the same number format counts more


def test_who_won_for_integers_says_nothing_of_floats_nor_these_of_them(options: EngineOptions) -> None:
    floats = replace(QWEN, quantization="F16")
    keep(options, "ik", quantization="Q4_0")
    assert order(options, floats) == ["llama", "ik"]
    keep(options, "ik", quantization="BF16")
    assert order(options, floats) == ["ik", "llama"]


def test_floats_say_nothing_of_integers(options: EngineOptions) -> None:
    keep(options, "ik", quantization="F16")
    assert order(options) == ["llama", "ik"]


def test_of_models_alike_the_one_nearest_in_size_counts(options: EngineOptions) -> None:
    keep(options, "llama", size=50)
    keep(options, "ik", size=2000)
    keep(options, "llama", size=100_000)
    found = find_lane(QWEN, (LLAMA, IK), options)
    assert found.attempts[0].verifier.name == "ik"
    assert found.lane is None
    assert "the fastest for ik's model" in found.why


def test_a_choice_among_other_engines_says_nothing(options: EngineOptions) -> None:
    keep(options, "ik", {"ik": BUILDS["ik"]})
    keep(options, "ik", {**BUILDS, "llama": "an older build"})
    assert order(options) == ["llama", "ik"]


def test_a_choice_for_one_request_at_a_time_says_nothing_about_several(options: EngineOptions) -> None:
    keep(options, "ik")
    assert order(options) == ["ik", "llama"]
    several = replace(options, slots=4)
    assert order(several) == ["llama", "ik"]
    assert find_lane(QWEN, (LLAMA, IK), several).priced is None
    assert find_lane(QWEN, (LLAMA, IK), options).priced == EngineSetting(engine="ik")


def test_the_certificate_names_the_engine_and_the_others_stand_by(options: EngineOptions) -> None:
    lane = Lane("lane", (1, 2, 3), EngineSetting(engine="ik"))
    CertificateStore(options.state_dir).put(certificate_of(identity_of(QWEN, BUILDS, options), lane))
    found = find_lane(QWEN, (LLAMA, IK), options)
    assert [(attempt.verifier.name, attempt.lane) for attempt in found.attempts] == [("ik", lane), ("llama", None)]
    assert (found.certificate is not None, found.identity) == (True, None)


def test_installing_an_engine_makes_a_new_certificate_necessary(options: EngineOptions) -> None:
    lane = Lane("lane", (1, 2, 3), EngineSetting())
    CertificateStore(options.state_dir).put(
        certificate_of(identity_of(QWEN, {"llama": BUILDS["llama"]}, options), lane)
    )
    alone = find_lane(QWEN, (LLAMA,), options)
    both = find_lane(QWEN, (LLAMA, IK), options)
    assert alone.certificate is not None
    assert both.certificate is None
    assert both.identity is not None


def test_an_engine_that_says_that_it_is_not_for_the_model_is_not_tried(options: EngineOptions) -> None:
    class Choosy(Engine):
        def unfit_for(self, pin: TargetPin, options: EngineOptions) -> str:
            return "recurrent models are not for it" if pin.architecture == "mamba" else ""

    choosy = Choosy("ik")
    for architecture, tried in (("qwen2", 2), ("mamba", 1)):
        pin = replace(QWEN, architecture=architecture)
        assert len(find_lane(pin, (LLAMA, choosy), options).attempts) == tried


@pytest.mark.parametrize("parity", [Parity.LANE, Parity.NONE])
def test_an_engine_that_does_not_take_the_model_is_not_tried(
    options: EngineOptions, tmp_path: Path, parity: Parity
) -> None:
    path = tmp_path / "weights.gguf"
    path.write_bytes(b"weights")
    time.sleep(2 * SETTLED_SECONDS)  # before, nothing is remembered about it
    pin = replace(QWEN, weights=(WeightPin("sha256:ab", path, 7),))
    Suitability(pin, BUILDS, options).refuse("llama", "unknown architecture")
    assert order(options, pin, parity) == ["ik"]
    Suitability(pin, BUILDS, options).diverges("ik", 1.0)
    assert order(options, pin, parity) == ["llama", "ik"]  # none is left, so what they say is the error
