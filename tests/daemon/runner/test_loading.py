"""A certificate is taken up by the next load of the real model: its lane, its block, its costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilotfish.daemon.certify.certificate import CertificateStore, identity_of
from pilotfish.daemon.config.types import Config, Engine, Speculation
from pilotfish.daemon.runner.launch_arguments import Launch
from pilotfish.daemon.runner.loading import load
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, EngineSetting, Lane
from pilotfish.manifests.pins import pin_file
from pilotfish.plugins.verifiers.llama import LlamaVerifier
from tests.engines import VERIFIERS
from tests.fakes.measured import certificate_of

pytestmark = pytest.mark.model


def test_a_load_takes_the_certified_lane_and_nothing_is_left_to_certify(smollm2_path: Path, tmp_path: Path) -> None:
    launch = Launch(smollm2_path, context=512, threads=1)
    pin, options = pin_file(smollm2_path, tmp_path), launch.engine_options(tmp_path)
    identity = identity_of(pin, {name: made().fingerprint(tmp_path) for name, made in VERIFIERS.items()}, options)
    lane = Lane(
        "certified", (2, 3, 5), EngineSetting("bf16", "f16"), prefill_block=64, exact_cache=True, max_context=300
    )
    costs = ((2, 64, 0.01), (5, 64, 0.02))
    made = certificate_of(identity, lane, costs=costs)
    CertificateStore(tmp_path).put(made)
    generator, card = load(launch, Config(), tmp_path)
    try:
        assert generator.engine.lane == lane
        assert generator.engine.n_ctx == 511  # room for the padding of the last forward
        assert card.certification == ""
    finally:
        generator.engine.close()


@pytest.mark.parametrize(("parity", "engine"), [("lane", "ik"), ("stock", "llama")])
def test_the_chosen_engine_computes_and_certifies_itself_unless_stocks_ids_are_asked_for(
    smollm2_path: Path, tmp_path: Path, parity: str, engine: str
) -> None:
    config = Config(Speculation(parity=parity), engine=Engine("ik"))
    generator, card = load(Launch(smollm2_path, context=256, threads=1), config, tmp_path)
    try:
        assert generator.engine.engine.name == generator.engine.lane.setting.engine == engine
        assert generator.engine.lane.name.startswith("ik: ") == (engine == "ik")
        assert json.loads(card.certification)["engines"] == [engine]
    finally:
        generator.engine.close()


def test_a_lane_whose_environment_is_not_in_force_is_refused(smollm2_path: Path, tmp_path: Path) -> None:
    lane = Lane("switched", (1, 2), EngineSetting(environment=(("GGML_NOT_SET_HERE", "0"),)))
    with pytest.raises(EngineError, match="GGML_NOT_SET_HERE=0"):
        LlamaVerifier().load(pin_file(smollm2_path, tmp_path), lane, EngineOptions())
