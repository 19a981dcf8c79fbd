"""Stock Ollama beside the overlaid one, situation by situation: `pilotfish bench --floor`.

Both servers are there at once, on one store, and are asked in turns; whoever is not asked does nothing. A round goes
through all situations, so that a noisy minute spoils a round of many and not all rounds of one. A figure is the median
of all rounds. A ratio is the overlaid server's figure to stock's in the same round, taken moments apart; shown is their
median.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import statistics
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.control import decision_log
from pilotfish.daemon.lab.demonstration import demo_weights
from pilotfish.daemon.lab.floor_servers import Ollamas, OllamaServer, remembered_state, serving
from pilotfish.daemon.lab.floor_situations import (
    ALLOWED,
    MODEL,
    PLAIN,
    Asked,
    Figure,
    FloorSizes,
    Situation,
    situations,
)
from pilotfish.hooks.errors import PilotfishError
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store

STOCK, OVERLAID = "stock", "overlaid"
ROUNDS = 5
_SAMPLED = 1.0  # seconds between two looks at the memory
_CONFIG = f'[models."{PLAIN}"]\nparity = "stock"\n'  # which, without a certificate, leaves no width but 1


@dataclass(slots=True)
class Line:
    """One situation: the figures of every round by server, and whatever went wrong."""

    name: str
    unit: str
    allowed: float = ALLOWED
    figures: dict[str, list[Figure]] = field(default_factory=lambda: {STOCK: [], OVERLAID: []})
    failures: dict[str, str] = field(default_factory=dict)

    def median(self, server: str) -> float | None:
        """None where nothing was measured."""
        values = [figure.value for figure in self.figures[server]]
        return statistics.median(values) if values else None

    @property
    def ratio(self) -> float | None:
        """The overlaid server's figure to stock's: of the rounds that both answered the median."""
        pairs = zip(self.figures[STOCK], self.figures[OVERLAID], strict=False)  # of a round, unless one failed in it
        ratios = [overlaid.value / stock.value for stock, overlaid in pairs if stock.value]
        return statistics.median(ratios) if ratios else None

    @property
    def short(self) -> bool:
        """Whether stock is better, or answers what the other does not."""
        return OVERLAID in self.failures or (self.ratio is not None and self.ratio > self.allowed)

    @property
    def answered(self) -> bool:
        """Whether both servers answered everything."""
        return not self.failures

    @property
    def equal_counts(self) -> bool:
        """Whether every answer of both has as many tokens, after as many, and ended alike."""
        counts = [[reply.counts for figure in figures for reply in figure.replies] for figures in self.figures.values()]
        return counts[0] == counts[1]

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; the texts are left out."""
        return {
            "name": self.name,
            "unit": self.unit,
            STOCK: self.median(STOCK),
            OVERLAID: self.median(OVERLAID),
            "ratio": self.ratio,
            "allowed": self.allowed,
            "equal_counts": self.equal_counts,
            "failures": self.failures,
            "rounds": {name: [figure.value for figure in figures] for name, figures in self.figures.items()},
        }


async def measured(
    situation: Situation, servers: Sequence[OllamaServer], sizes: FloorSizes, rounds: int, words_per_token: float
) -> Line:
    """A situation in so many rounds on each server."""
    line = _line(situation)
    for number in range(rounds):
        await _round(line, situation, servers, sizes, number, words_per_token)
    return line


def _line(situation: Situation) -> Line:
    return Line(situation.name, situation.unit, situation.allowed)


async def _round(
    line: Line,
    situation: Situation,
    servers: Sequence[OllamaServer],
    sizes: FloorSizes,
    number: int,
    words_per_token: float,
) -> None:
    """One more figure of each server. What is refused or breaks is a failure of the line."""
    # Who comes first takes turns: the second may find the cores warm and files cached.
    for server in servers if number % 2 == 0 else reversed(servers):
        try:
            figure = await situation.measure(Asked(server, sizes, number, words_per_token))
        except PilotfishError as error:
            line.failures[server.name] = str(error)
        else:
            line.figures[server.name].append(figure)


@dataclass(frozen=True, slots=True)
class FloorBench:
    """What is measured: two Ollamas on one model, in a `folder` on the same file system as the weights, if it can be.

    `environment` is for both servers.
    """

    ollamas: Ollamas
    model: Path
    rounds: int
    folder: Path
    sizes: FloorSizes = field(default_factory=FloorSizes)
    environment: Mapping[str, str] = field(default_factory=dict)
    state: Path | None = None  # whose certificates count; the user's by default

    async def run(self, report: Callable[[str], None] = lambda what: None) -> list[Line]:
        """Measure everything. A situation that fails is a failure in its line; raises EngineError without a server."""
        models = self._store()
        wanted = [(situation, _line(situation)) for situation in situations(self.sizes)]
        for parallel in sorted({situation.parallel for situation, _ in wanted}):
            group = [(situation, line) for situation, line in wanted if situation.parallel == parallel]
            async with self._servers(models, parallel) as servers:
                # Both: a first load hashes the weights and checks the lane, which is remembered.
                words, *_ = [await _words_per_token(server, self.sizes) for server in servers]
                for number in range(self.rounds):
                    for situation, line in group:
                        report(f"{situation.name}, round {number + 1} of {self.rounds}")
                        await _round(line, situation, servers, self.sizes, number, words)
        return [line for _, line in wanted]

    def why_stock(self) -> str:
        """Why the overlaid server left the model to stock when it was loaded last; empty where it speculated."""
        decided: dict[str, decision_log.Logged] = {}
        for state in sorted(self.folder.glob(f"{OVERLAID}-*/state")):
            decided |= {one.model: one for one in decision_log.read(state)}
        last = decided.get(ModelName.parse(MODEL).short)
        return last.reason if last and last.decision == "stock" else ""

    @contextlib.asynccontextmanager
    async def _servers(self, models: Path, parallel: int) -> AsyncIterator[list[OllamaServer]]:
        """Stock and overlaid, with their memory watched."""
        async with contextlib.AsyncExitStack() as stack:
            servers = []
            for name, binary in ((STOCK, self.ollamas.stock), (OVERLAID, self.ollamas.overlaid)):
                folder = self.folder / f"{name}-{parallel}"
                environment = {**self._environment(folder), **self.environment, "OLLAMA_NUM_PARALLEL": str(parallel)}
                servers.append(await stack.enter_async_context(serving(name, binary, models, folder, environment)))
            await stack.enter_async_context(_watched(servers))
            yield servers

    def _environment(self, folder: Path) -> dict[str, str]:
        folder.mkdir(parents=True)
        state = remembered_state(self.state or state_dir(), folder / "state")
        config = folder / "pilotfish.toml"
        config.write_text(_CONFIG)
        return {"PILOTFISH_STATE": str(state), "PILOTFISH_CONFIG": str(config)}

    def _store(self) -> Path:
        """A store with the model, and another one that is made not to speculate."""
        models = self.folder / "models"
        store = Store(models)
        store.add_gguf(ModelName.parse(MODEL), self.model)
        plain = self.folder / "plain.gguf"
        shutil.copyfile(demo_weights(), plain)
        with plain.open("ab") as file:  # other bytes are other weights: models that share theirs share a runner
            file.write(bytes(1))
        store.add_gguf(ModelName.parse(PLAIN), plain)
        return models


@contextlib.asynccontextmanager
async def _watched(servers: Sequence[OllamaServer]) -> AsyncIterator[None]:
    """Look at the servers' memory now and then, so that they know their peak."""

    async def watch() -> None:
        while True:
            for server in servers:
                await asyncio.to_thread(server.memory)
            await asyncio.sleep(_SAMPLED)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _words_per_token(server: OllamaServer, sizes: FloorSizes) -> float:
    """How many of our words make a token, by what the server counts."""
    asked = Asked(server, sizes, -1, 1.0)
    text = asked.text(100, "a measure")
    reply = await asked.generate(text, 1)
    return len(text.split()) / max(1, reply.prompt)


def document(bench: FloorBench, lines: Sequence[Line], about: Mapping[str, Any]) -> dict[str, Any]:
    """The result, JSON-ready."""
    settings = {"ollama": bench.ollamas.build, "model": str(bench.model), "rounds": bench.rounds}
    return {
        "about": {**settings, "sizes": asdict(bench.sizes), **about},
        "lines": [line.to_json() for line in lines],
        "short": [line.name for line in lines if line.short],
        "left_to_stock": bench.why_stock(),
    }
