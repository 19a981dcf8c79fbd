"""The benchmark's course: rounds, modes, passes and tasks, every system asked in turn.

One block is a round in one mode: all servers are started and warmed up, then each task of the first pass is put to
every system before the next task is, then the second pass likewise, then the servers end. The order of the systems
changes from task to task and is reversed every other time, so that a machine that warms up, cools down or has other
work favours nobody, and so that what is divided by each other was measured within seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field

import aiohttp

from pilotfish.daemon.front.runner_client import new_session
from pilotfish.daemon.lab.bench_measuring import Answers, TimedAnswer, measure
from pilotfish.daemon.lab.bench_quiet import QuietWatch
from pilotfish.daemon.lab.bench_systems import Bed, ServedSystem, System, record, serving
from pilotfish.daemon.lab.bench_tasks import Task
from pilotfish.hooks.errors import PilotfishError, WorldError

SETTLE = 0.05  # seconds before each request: threads of the system asked before have gone to sleep by then

Serve = Callable[[System, Bed, aiohttp.ClientSession], contextlib.AbstractAsyncContextManager[ServedSystem]]


@dataclass(frozen=True, slots=True)
class Run:
    """One task answered by one system. `equal` compares with the reference's answer in the same round; None without."""

    system: str
    mode: str
    again: str  # the pass
    workload: str
    kind: str
    round: int
    answer: TimedAnswer
    equal: bool | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """One server of one block: seconds until it could be asked, and bytes when it had answered all tasks."""

    system: str
    mode: str
    round: int
    seconds: float
    resident: int
    peak: int | None


@dataclass(slots=True)
class Bench:
    """A benchmark to be run once. `failures` says why a system was left out from some point on; `loads` fills as
    blocks end."""

    systems: Sequence[System]
    tasks: Sequence[Task]  # in the order in which they are asked within a mode
    warm_up: Task
    rounds: int
    bed: Bed
    watch: QuietWatch
    starting: Callable[[str], None] = lambda what: None
    serve: Serve = serving
    clock: Callable[[], float] = time.perf_counter
    failures: dict[str, str] = field(default_factory=dict)
    loads: list[Load] = field(default_factory=list)
    _known: dict[tuple[str, str, str], tuple[int, ...]] = field(default_factory=dict)  # task -> its ids, for replays

    @property
    def total(self) -> int:
        """How many runs there will be if nothing fails."""
        return self.rounds * len(self.tasks) * len(self.systems)

    async def run(self) -> AsyncGenerator[Run, None]:
        """Every run as it is done, in blocks. Raises PilotfishError when a system that others are compared to fails."""
        modes = dict.fromkeys(task.mode.name for task in self.tasks)
        async with new_session(reuse=False) as session:
            for number in range(self.rounds):
                for mode in modes:
                    async with contextlib.aclosing(self._block(number, mode, session)) as block:
                        async for run in block:
                            yield run

    async def _block(self, number: int, mode: str, session: aiohttp.ClientSession) -> AsyncGenerator[Run, None]:
        async with contextlib.AsyncExitStack() as servers:
            up = await self._start(servers, session)
            with self.watch.stretch():
                for i, task in enumerate(task for task in self.tasks if task.mode.name == mode):
                    async for run in self._turn(number, i, task, up):
                        yield run
            self.loads += [load for name, (_, served) in up.items() if (load := _load(name, mode, number, served))]

    async def _start(
        self, servers: contextlib.AsyncExitStack, session: aiohttp.ClientSession
    ) -> dict[str, tuple[System, ServedSystem]]:
        up: dict[str, tuple[System, ServedSystem]] = {}
        for system in self.systems:
            if system.name in self.failures:
                continue
            self.starting(f"loading {system.name}")
            with self._isolated(system):
                served = await servers.enter_async_context(self.serve(system, self.bed, session))
                if system.replay is not None:
                    record(system, self.bed, ())
                await measure(served.answers.chunks(self.warm_up), self.clock)
                up[system.name] = system, served
        return up

    async def _turn(
        self, number: int, i: int, task: Task, up: dict[str, tuple[System, ServedSystem]]
    ) -> AsyncIterator[Run]:
        """Put one task to every system. The runs come out at the end, when all references are known."""
        answered: dict[str, tuple[System, TimedAnswer]] = {}
        for system in self._order(number, i, task):
            if system.name not in up or system.name in self.failures:
                continue
            self.starting(f"{task.workload.name}, {task.mode.name}, {task.again} pass: {system.name}")
            with self._isolated(system):
                answered[system.name] = system, await self._ask(system, up[system.name][1].answers, task)
        for system, answer in answered.values():
            reference = answered.get(system.reference)
            yield Run(
                system=system.name,
                mode=task.mode.name,
                again=task.again,
                workload=task.workload.name,
                kind=task.workload.kind,
                round=number,
                answer=answer,
                equal=same(answer, reference[1]) if reference else None,
            )

    async def _ask(self, system: System, answers: Answers, task: Task) -> TimedAnswer:
        if system.replay is not None:
            record(system, self.bed, self._known.get(task.key, ()))
        await asyncio.sleep(SETTLE)
        answer = await measure(answers.chunks(task), self.clock)
        if any(system.name == other.reference and other.replay is not None for other in self.systems):
            self._known[task.key] = answer.ids
        return answer

    def _order(self, number: int, i: int, task: Task) -> list[System]:
        order = in_turn(self.systems, number + i)
        if task.key not in self._known:  # who replays needs something to replay: the first time it comes last
            order.sort(key=lambda system: system.replay is not None)
        return order

    @contextlib.contextmanager
    def _isolated(self, system: System) -> Iterator[None]:
        """A failing system is left out from now on, unless others are compared to it."""
        try:
            yield
        except PilotfishError as error:
            if any(other.reference == system.name for other in self.systems):
                raise WorldError(f"{system.name}, to which others are compared, failed: {error}") from error
            self.failures[system.name] = str(error)


def _load(name: str, mode: str, number: int, served: ServedSystem) -> Load | None:
    """None of a server that was there before, or is not there any more."""
    if served.process is None or (memory := served.process.memory()) is None:
        return None
    return Load(name, mode, number, served.process.load_seconds, memory.resident, memory.peak)


def in_turn(systems: Sequence[System], number: int) -> list[System]:
    """The systems, beginning with another one each time, backwards every other time."""
    start = number % len(systems)
    order = [*systems[start:], *systems[:start]]
    return order[::-1] if number % 2 else order


def same(a: TimedAnswer, b: TimedAnswer) -> bool:
    """Whether two answers have the same ids, as far as these were streamed, and the same text."""
    return a.ids == b.ids and a.text == b.text and a.tokens == b.tokens
