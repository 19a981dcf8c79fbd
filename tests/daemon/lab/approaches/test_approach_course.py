"""An approach beside plain decoding: asked in turn, its rate, its memory, its trouble."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import pytest

from pilotfish.daemon.config.types import Config, Drafters
from pilotfish.daemon.lab import benchmark
from pilotfish.daemon.lab.approaches.approach import Approach
from pilotfish.daemon.lab.approaches.approach_course import ApproachCourse
from pilotfish.daemon.lab.bench_measuring import Chunk
from pilotfish.daemon.lab.bench_quiet import QuietWatch, Snapshot
from pilotfish.daemon.lab.bench_starting import HeldMemory
from pilotfish.daemon.lab.bench_systems import Bed, ServedSystem, System
from pilotfish.daemon.lab.bench_tasks import Task
from pilotfish.daemon.lab.workloads import MODES, Workload

PLAIN = System("plain", "", engine="llama", drafters=Drafters(()))
FAST = System("fast", "", "plain", engine="llama", drafters=Drafters(("suffix",)))


@dataclass
class Server:
    """A server's process, its client and what it answers with: all of it fake."""

    ids: tuple[int, ...] = (1, 2, 3)
    resident: int = 100
    pools: tuple[dict, ...] = ({"suffix": {"state": "ready", "about": ""}},)
    load_seconds: float = 0.0
    asked: int = 0

    @property
    def client(self):
        return self

    def memory(self):
        return HeldMemory(self.resident, None)

    async def explain(self):
        self.asked += 1
        return {"pool": self.pools[min(self.asked, len(self.pools)) - 1]}

    async def chunks(self, task):
        for token in self.ids:
            yield Chunk((token,), str(token))
        yield Chunk(tokens=len(self.ids), drafted=4, accepted=3)


@pytest.fixture
def course(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "SETTLE", 0)

    def made(servers):
        @contextlib.asynccontextmanager
        async def serve(system, bed, session):
            yield ServedSystem(servers[system.name], servers[system.name])

        tasks = [Task(Workload(name, "open", name, ""), "first", MODES[0], name, (7,), 3) for name in "abc"]
        bed = Bed(tmp_path / "m.gguf", "m", 1, 64, Config(), tmp_path, tmp_path)
        still = QuietWatch(lambda text: None, lambda: Snapshot(0, 0, 0))
        return ApproachCourse(tasks[1:], tasks[0], 2, bed, still, serve=serve)

    return made


async def test_both_are_asked_and_their_memory_is_told_apart(course):
    servers = {"plain": Server(), "fast": Server(resident=140)}
    found = await course(servers).measured(Approach("fast", "how", PLAIN, FAST))
    assert (found.compared, found.equal, found.exact, found.acceptance) == (4, 4, True, 0.75)
    assert (found.memory_without, found.memory_with, found.added_memory) == (100, 140, 40)
    assert found.rate_with > 0
    assert found.gain > 0


async def test_an_answer_that_differs_enters_no_rate(course):
    servers = {"plain": Server(), "fast": Server(ids=(1, 2, 4))}
    found = await course(servers).measured(Approach("fast", "how", PLAIN, FAST))
    assert (found.equal, found.exact, found.rate_with, found.gain) == (0, False, None, None)


async def test_a_drafter_that_still_loads_is_waited_for(course):
    loading = {"suffix": {"state": "loading", "about": ""}}
    fast = Server(pools=(loading, *Server.pools))
    await course({"plain": Server(), "fast": fast}).measured(Approach("fast", "how", PLAIN, FAST))
    assert fast.asked == 2 + 1  # its second round finds it ready


@pytest.mark.parametrize(
    ("pool", "why"),
    [({"suffix": {"state": "refused", "about": "too large"}}, "suffix is refused: too large"), ({}, "no drafter is")],
)
async def test_a_drafter_that_cannot_be_had_is_the_approachs_trouble(course, pool, why):
    found = await course({"plain": Server(), "fast": Server(pools=(pool,))}).measured(
        Approach("fast", "how", PLAIN, FAST)
    )
    assert why in found.trouble
    assert found.rate_with is None
