"""A certificate is taken up by the next load of the real model: its lane, its block, its costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilotfish.daemon.certify.certificate import Certificate, CertificateStore, identity_of
from pilotfish.daemon.config.types import Config, Engine, Speculation
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.runner.conversation_memory import remembered_by
from pilotfish.daemon.runner.launch_arguments import Launch
from pilotfish.daemon.runner.loading import load
from pilotfish.daemon.runner.long_prompts import long_prompts_read
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, EngineSetting, Lane
from pilotfish.manifests.pins import pin_file
from pilotfish.plugins.verifiers.llama import LlamaVerifier
from tests.fakes.state import with_known_lanes

pytestmark = pytest.mark.model


def test_a_load_takes_the_certified_lane_and_nothing_is_left_to_certify(smollm2_path: Path, tmp_path: Path) -> None:
    launch = Launch(smollm2_path, context=512, threads=1)
    pin, options = pin_file(smollm2_path, tmp_path), launch.engine_options(tmp_path)
    identity = identity_of(pin, LlamaVerifier().fingerprint(tmp_path), options)
    lane = Lane(
        "certified", (2, 3, 5), EngineSetting("bf16", "f16"), prefill_block=64, exact_cache=True, max_context=300
    )
    costs = ((2, 64, 0.01), (5, 64, 0.02))
    made = Certificate(identity, "m", "1", "", 512, lane, 1.0, 1.0, 1.0, (), costs, (), (), (), 1.0, True)
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
        assert json.loads(card.certification)["verifier"] == engine
    finally:
        generator.engine.close()


def test_a_lane_whose_environment_is_not_in_force_is_refused(smollm2_path: Path, tmp_path: Path) -> None:
    lane = Lane("switched", (1, 2), EngineSetting(environment=(("GGML_NOT_SET_HERE", "0"),)))
    with pytest.raises(EngineError, match="GGML_NOT_SET_HERE=0"):
        LlamaVerifier().load(pin_file(smollm2_path, tmp_path), lane, EngineOptions())


@pytest.mark.parametrize(("cache_ram", "cached", "hits"), [(64 << 20, 39, 1), (0, 0, 0)])
def test_a_loaded_model_takes_a_conversation_up_again_if_the_launch_leaves_memory_for_it(
    smollm2_path: Path, tmp_path: Path, cache_ram: int, cached: int, hits: int
) -> None:
    launch = Launch(smollm2_path, context=256, threads=1, cache_ram=cache_ram)
    generator, _ = load(launch, Config(), with_known_lanes(tmp_path))

    def ask(start: int) -> int:
        request = GenerationRequest(tuple(range(start, start + 40)), n_predict=2)
        return generator.generate(request, lambda tokens: None, lambda: False).timings.cache_n

    try:
        assert [ask(100), ask(500), ask(100)] == [0, 0, cached]
        assert remembered_by(generator.engine).hits == hits
    finally:
        generator.engine.close()


@pytest.mark.parametrize(("prompts", "where"), [("fast", "with stock's cache types"), ("lane", "in the lane")])
def test_long_prompts_are_read_where_the_config_says(
    smollm2_path: Path, tmp_path: Path, prompts: str, where: str
) -> None:
    launch, lane = Launch(smollm2_path, context=512, threads=1), EngineSetting("bf16", "f16")
    pin, options = pin_file(smollm2_path, tmp_path), launch.engine_options(tmp_path)
    identity = identity_of(pin, LlamaVerifier().fingerprint(tmp_path), options)
    certified = Lane("certified", (1, 2), lane, exact_cache=True)
    made = Certificate(identity, "m", "1", "", 512, certified, 1.0, 1.0, 1.0, (), (), (), (), (), 1.0, True)
    CertificateStore(tmp_path).put(made)
    generator, _ = load(launch, Config(engine=Engine(prompts=prompts)), tmp_path)
    try:
        assert long_prompts_read(generator.engine) == where
    finally:
        generator.engine.close()
