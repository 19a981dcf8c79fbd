"""The course of a comparison: each approach beside plain decoding on the same program, the same prompts in turn.

One pair at a time, so that memory holds two servers and no more. Both are up while either is asked, and take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import aiohttp

from pilotfish.daemon.lab.approaches.approach import Approach, ApproachResult
from pilotfish.daemon.lab.bench_quiet import QuietWatch
from pilotfish.daemon.lab.bench_systems import Bed, ServedSystem, System, serving
from pilotfish.daemon.lab.bench_tasks import Task
from pilotfish.daemon.lab.benchmark import Bench, Load, Run, Serve
from pilotfish.daemon.lab.parity_subject import LOADING_SECONDS
from pilotfish.hooks.errors import EngineError, PilotfishError

_LOOK = 0.2  # seconds between looks


@dataclass(frozen=True, slots=True)
class ApproachCourse:
    """What every approach is asked. `serve` starts a system."""

    tasks: Sequence[Task]
    warm_up: Task
    rounds: int
    bed: Bed
    watch: QuietWatch
    starting: Callable[[str], None] = lambda what: None
    serve: Serve = serving

    async def measured(self, approach: Approach) -> ApproachResult:
        """Its figures; its trouble where it, or what it is compared to, does not work."""
        ready: Serve = self._ready
        systems = (approach.plain, approach.drafted)
        bench = Bench(systems, self.tasks, self.warm_up, self.rounds, self.bed, self.watch, self.starting, ready)
        runs: list[Run] = []
        try:
            async with contextlib.aclosing(bench.run()) as results:
                async for run in results:
                    runs.append(run)
        except PilotfishError as error:
            return ApproachResult(approach.title, approach.about, trouble=str(error))
        if trouble := bench.failures.get(approach.drafted.name, ""):
            return ApproachResult(approach.title, approach.about, trouble=trouble)
        return result_of(approach, runs, bench.loads)

    @contextlib.asynccontextmanager
    async def _ready(self, system: System, bed: Bed, session: aiohttp.ClientSession) -> AsyncIterator[ServedSystem]:
        """The system, once its drafters are ready: a drafter that loads meanwhile would be measured as none."""
        async with self.serve(system, bed, session) as served:
            if system.drafters is not None and system.drafters.order and served.process is not None:
                await _until_drafters_are_ready(served)
            yield served


async def _until_drafters_are_ready(served: ServedSystem) -> None:
    assert served.process is not None
    until = time.monotonic() + LOADING_SECONDS
    while time.monotonic() < until:
        pool = (await served.process.client.explain()).get("pool", {})
        states = {drafter: found["state"] for drafter, found in pool.items()}
        if states and all(state == "ready" for state in states.values()):
            return
        if bad := [drafter for drafter, state in states.items() if state not in ("ready", "loading")]:
            raise EngineError(f"{bad[0]} is {states[bad[0]]}: {pool[bad[0]]['about']}")
        if not states:
            raise EngineError("no drafter is used here: its lane holds one token, or it cannot be had")
        await asyncio.sleep(_LOOK)
    raise EngineError(f"its drafter did not load within {LOADING_SECONDS:.0f} s")


def result_of(approach: Approach, runs: Sequence[Run], loads: Sequence[Load]) -> ApproachResult:
    """From runs of both systems. Answers that were not equal enter no rate."""
    mine = [run for run in runs if run.system == approach.drafted.name]
    plain = [run for run in runs if run.system == approach.plain.name]
    drafted, accepted = (sum(getattr(run.answer, what) for run in mine) for what in ("drafted", "accepted"))
    return ApproachResult(
        title=approach.title,
        about=approach.about,
        rate_with=_rate([run for run in mine if run.equal]),
        rate_without=_rate(plain),
        memory_with=_memory(approach.drafted, loads),
        memory_without=_memory(approach.plain, loads),
        acceptance=accepted / drafted if drafted else None,
        compared=len(mine),
        equal=sum(bool(run.equal) for run in mine),
    )


def _rate(runs: Sequence[Run]) -> float | None:
    rates = [run.answer.tokens / run.answer.seconds for run in runs if run.answer.seconds > 0]
    return statistics.median(rates) if rates else None


def _memory(system: System, loads: Sequence[Load]) -> int | None:
    return max((load.resident for load in loads if load.system == system.name), default=None)
