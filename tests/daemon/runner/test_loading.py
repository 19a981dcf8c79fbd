"""A certificate is taken up by the next load of the real model: its lane, its block, its costs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pilotfish.daemon.certify.certificate import CertificateStore, identity_of
from pilotfish.daemon.config.types import Config, Engine, Speculation
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.registry.registry import Registry
from pilotfish.daemon.runner.conversation_memory import remembered_by
from pilotfish.daemon.runner.launch_arguments import Launch
from pilotfish.daemon.runner.loading import load
from pilotfish.daemon.runner.long_prompts import long_prompts_read
from pilotfish.hooks.errors import BrokenModel, EngineError
from pilotfish.hooks.types import EngineOptions, EngineSetting, Lane
from pilotfish.manifests.pins import pin_file
from pilotfish.plugins.verifiers.llama import LlamaVerifier
from tests.engines import VERIFIERS
from tests.fakes.measured import certificate_of
from tests.fakes.state import with_known_lanes
from tests.manifests.builders import tiny_gguf

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
    generator, card = load(Launch(smollm2_path, context=512, threads=1), config, with_known_lanes(tmp_path))
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


@pytest.mark.parametrize(
    ("unmeasured", "seconds", "again"), [((), 60.0, False), (("ik",), 60.0, True), (("ik",), 230.0, False)]
)
def test_a_certificate_without_an_engine_for_want_of_time_is_made_again_with_more(
    smollm2_path: Path, tmp_path: Path, unmeasured: tuple[str, ...], seconds: float, again: bool
) -> None:
    launch = Launch(smollm2_path, context=256, threads=1)
    builds = {name: made().fingerprint(tmp_path) for name, made in VERIFIERS.items()}
    identity = identity_of(pin_file(smollm2_path, tmp_path), builds, launch.engine_options(tmp_path))
    lane = Lane("llama's", (1, 2), EngineSetting("bf16", "f16"))
    CertificateStore(tmp_path).put(certificate_of(identity, lane, unmeasured=unmeasured, seconds=seconds))
    generator, card = load(launch, Config(), tmp_path)
    generator.engine.close()
    assert generator.engine.lane == lane
    assert bool(card.certification) is again


class Failing:
    """An engine that is there, and whose library does not load the model."""

    name = "ik"

    def __init__(self, error: Exception) -> None:
        self._error = error

    def fingerprint(self, state_dir: Path | None) -> str:
        return "build of ik"

    def probe(self, *arguments: object) -> None: ...

    def load(self, *arguments: object) -> None:
        raise self._error


@pytest.fixture
def failing_ik(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], None]:
    """Make `ik` an engine whose loads raise that error."""

    def fails(error: Exception) -> None:
        own = Registry.verifier
        ik = Failing(error)
        monkeypatch.setattr(Registry, "verifier", lambda registry, name: ik if name == "ik" else own(registry, name))

    return fails


def prefer_ik(path: Path, state: Path, builds: Mapping[str, str]) -> None:
    """A certificate for this very model that says that ik is the fastest."""
    launch = Launch(path, context=512, threads=1)
    identity = identity_of(pin_file(path, state), builds, launch.engine_options(state))
    CertificateStore(state).put(certificate_of(identity, Lane("ik's", (1, 2), EngineSetting(engine="ik"))))


def test_where_the_chosen_engine_does_not_load_the_model_the_next_one_does(
    smollm2_path: Path, tmp_path: Path, failing_ik: Callable[[Exception], None]
) -> None:
    failing_ik(BrokenModel("smollm2: unknown architecture"))
    prefer_ik(
        smollm2_path, with_known_lanes(tmp_path), {"llama": LlamaVerifier().fingerprint(tmp_path), "ik": "build of ik"}
    )
    generator, _ = load(Launch(smollm2_path, context=512, threads=1), Config(), tmp_path)
    try:
        assert generator.engine.lane.setting.engine == "llama"
        assert generator.engine.lane.max_width > 1
        assert "engine ik: smollm2: unknown architecture" in map(str, generator.registry.problems)
    finally:
        generator.engine.close()


@pytest.mark.parametrize(("cache_ram", "cached", "hits"), [(64 << 20, 39, 1), (0, 0, 0)])
def test_a_loaded_model_takes_a_conversation_up_again_if_the_launch_leaves_memory_for_it(
    smollm2_path: Path, tmp_path: Path, cache_ram: int, cached: int, hits: int
) -> None:
    launch = Launch(smollm2_path, context=512, threads=1, cache_ram=cache_ram)
    generator, _ = load(launch, Config(), with_known_lanes(tmp_path))

    def ask(start: int) -> int:
        request = GenerationRequest(tuple(range(start, start + 40)), n_predict=2)
        return generator.generate(request, lambda tokens: None, lambda: False).timings.cache_n

    try:
        assert [ask(100), ask(500), ask(100)] == [0, 0, cached]
        assert remembered_by(generator.engine).hits == hits
    finally:
        generator.engine.close()


def test_where_no_engine_loads_the_model_the_first_ones_reason_is_told(
    tmp_path: Path, failing_ik: Callable[[Exception], None]
) -> None:
    broken = tiny_gguf(tmp_path / "tiny.gguf")
    failing_ik(EngineError("of no use"))
    with pytest.raises(BrokenModel, match="libllama cannot load"):
        load(Launch(broken, context=256, threads=1), Config(), tmp_path)


WITHOUT_LIBLLAMA = """
import sys
from importlib.machinery import PathFinder
from pathlib import Path

find = PathFinder.find_spec
PathFinder.find_spec = classmethod(
    lambda cls, name, path=None, target=None: None if name.startswith("llama_cpp") else find(name, path, target)
)

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.runner.launch_arguments import Launch
from pilotfish.daemon.runner.loading import load

generator, card = load(Launch(Path(sys.argv[1]), context=512, threads=1), Config(), Path(sys.argv[2]))
print(generator.engine.lane.name, generator.registry.problems, "llama_cpp" in sys.modules)
generator.engine.close()
"""


def test_without_libllama_the_other_engine_computes_alone(smollm2_path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_LIBLLAMA, str(smollm2_path), str(with_known_lanes(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "ik: no flash, K f16, V f16 [] False", done.stderr


@pytest.mark.parametrize(("prompts", "where"), [("fast", "with stock's cache types"), ("lane", "in the lane")])
def test_long_prompts_are_read_where_the_config_says(
    smollm2_path: Path, tmp_path: Path, prompts: str, where: str
) -> None:
    launch, lane = Launch(smollm2_path, context=512, threads=1), EngineSetting("bf16", "f16")
    pin, options = pin_file(smollm2_path, tmp_path), launch.engine_options(tmp_path)
    identity = identity_of(pin, {"llama": LlamaVerifier().fingerprint(tmp_path)}, options)
    certified = Lane("certified", (1, 2), lane, exact_cache=True)
    CertificateStore(tmp_path).put(certificate_of(identity, certified))
    generator, _ = load(launch, Config(engine=Engine(choice="llama", prompts=prompts)), tmp_path)
    try:
        assert long_prompts_read(generator.engine) == where
    finally:
        generator.engine.close()
