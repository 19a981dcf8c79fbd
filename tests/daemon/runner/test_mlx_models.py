"""A runner whose launch names the manifest of an MLX model, and its certification: the way of any other model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilotfish.daemon.certify.certification import certify
from pilotfish.daemon.certify.lookup import find_lane
from pilotfish.daemon.config.types import Config, Speculation
from pilotfish.daemon.runner.launch_arguments import Launch
from pilotfish.daemon.runner.loading import load
from pilotfish.hooks.types import EngineOptions, Parity, TargetPin
from pilotfish.manifests.manifest_paths import name_at
from pilotfish.manifests.pins import pin_file
from pilotfish.manifests.store import Store
from pilotfish.plugins.verifiers.mlx import MLXVerifier
from tests.plugins.verifiers.courses import course, ids
from tests.plugins.verifiers.tiny_mlx import write_tiny
from tests.server_processes import RUNNER, running

pytestmark = pytest.mark.drafters

PROMPT = list(b"one two three one two three one two")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def pin(store: Store) -> TargetPin:
    return write_tiny(store, "tiny")


@pytest.fixture
def manifest(store: Store, pin: TargetPin) -> Path:
    return store.manifests / store.manifest(pin.name).name.path


def test_a_manifests_path_stands_for_its_model(manifest: Path, pin: TargetPin, tmp_path: Path) -> None:
    assert pin_file(manifest) == pin
    assert Launch(manifest).names == ("tiny:latest",)
    assert name_at(tmp_path / "tiny") is None


def test_a_runner_answers_with_the_ids_of_plain_decoding(manifest: Path, pin: TargetPin, tmp_path: Path) -> None:
    engine = MLXVerifier().load(pin, None, EngineOptions(n_ctx=256))
    plain = ids(course(engine, PROMPT, 24)[0])
    engine.close()
    with running(RUNNER, manifest, tmp_path / "log", "--ctx-size", "256") as server:
        said = server.http.get("/props").json()
        asked = {"prompt": PROMPT, "n_predict": 24, "temperature": 0, "ignore_eos": True, "return_tokens": True}
        answers = [server.post("/completion", **asked).json()["tokens"] for _ in range(2)]
        refused = server.post("/completion", **asked, json_schema={"type": "object"})
    assert answers == [plain, plain]
    assert said["default_generation_settings"]["n_ctx"] == 256
    assert (refused.status_code >= 400, "MLX" in refused.text) == (True, True)


def test_nothing_is_promised_about_stocks_ids(manifest: Path, tmp_path: Path) -> None:
    generator, card = load(Launch(manifest, context=256), Config(Speculation(parity=Parity.STOCK)), tmp_path)
    generator.close()
    assert (card.lane.widths, card.lane.parity) == ((1,), Parity.NONE)
    assert "cannot promise" in card.lane.reason


def test_it_is_certified_among_its_own_settings(pin: TargetPin, tmp_path: Path) -> None:
    options = EngineOptions(n_ctx=512, state_dir=tmp_path)
    certificate, kept = certify(pin, [MLXVerifier()], options, budget=240)
    assert kept is not None
    seen = certificate.to_json()
    assert "mlx: flash, K f16, V f16" in json.dumps(seen)
    assert (certificate.lane.setting.engine, certificate.lane.max_width > 1) == ("mlx", True)
    found = find_lane(pin, [MLXVerifier()], options)
    assert found.certificate is not None
    assert found.lane is not None
    assert found.lane.setting.engine == "mlx"
