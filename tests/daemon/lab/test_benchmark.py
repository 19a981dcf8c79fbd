"""The benchmark's course: who is asked when, what is compared with what, and what happens when one fails."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.lab import benchmark
from pilotfish.daemon.lab.bench_measuring import Chunk
from pilotfish.daemon.lab.bench_quiet import QuietWatch, Snapshot
from pilotfish.daemon.lab.bench_starting import HeldMemory
from pilotfish.daemon.lab.bench_systems import Bed, ServedSystem, System
from pilotfish.daemon.lab.bench_tasks import PASSES, Task
from pilotfish.daemon.lab.benchmark import Bench, Load, in_turn
from pilotfish.daemon.lab.workloads import MODES, Workload
from pilotfish.hooks.errors import EngineError, WorldError

PLAIN = System("plain", "")
FAST = System("fast", "", "plain")
ORACLE = System("oracle", "", "plain", replay={})


@dataclass
class Fake:
    """Answers with `ids`; `log` tells what was asked, in order, and what the replayed recording then held."""

    system: System
    bed: Bed
    log: list
    ids: tuple[int, ...] = (1, 2, 3)
    error: Exception | None = None

    async def chunks(self, task: Task):
        recording = self.bed.recording(self.system)
        known = recording.read_text() if recording.is_file() else ""
        self.log.append((self.system.name, task.workload.name, task.again, known))
        if self.error and task.workload.name != "warm-up":
            raise self.error
        for token in self.ids:
            yield Chunk((token,), "x")
        yield Chunk(tokens=len(self.ids))


@dataclass
class Stage:
    """A bench over fakes. `ids` and `errors` are by system; `log` is what happened."""

    bed: Bed
    ids: dict = field(default_factory=dict)
    errors: dict = field(default_factory=dict)
    log: list = field(default_factory=list)
    processes: dict = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def serve(self, system, bed, session):
        if self.errors.get(system.name) == "load":
            raise EngineError("it does not load")
        self.log.append((system.name, "up"))
        try:
            answers = Fake(system, bed, self.log, self.ids.get(system.name, (1, 2, 3)), self.errors.get(system.name))
            yield ServedSystem(answers, self.processes.get(system.name))
        finally:
            self.log.append((system.name, "down"))

    def bench(self, *systems: System, rounds: int = 1, modes=MODES[:1]) -> Bench:
        tasks = [task(name, again, mode) for mode in modes for again in PASSES for name in ("a", "b")]
        still = QuietWatch(lambda text: None, lambda: Snapshot(0, 0, 0))
        return Bench(systems, tasks, task("warm-up"), rounds, self.bed, still, serve=self.serve)


def task(name: str, again: str = "first", mode=MODES[0]) -> Task:
    return Task(Workload(name, "open", name, ""), again, mode, name, (7,), 3)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(benchmark, "SETTLE", 0)
    return Stage(Bed(tmp_path / "m.gguf", "m", 1, 64, Config(), tmp_path, tmp_path))


async def runs_of(bench: Bench) -> list:
    return [run async for run in bench.run()]


async def test_every_system_answers_a_task_before_the_next_task_and_pass_come(stage):
    await runs_of(stage.bench(PLAIN, FAST))
    asked = [(name, again) for _, name, again, _ in (e for e in stage.log if len(e) == 4) if name != "warm-up"]
    assert asked == [(name, again) for again in PASSES for name in ("a", "b") for _ in range(2)]


async def test_servers_live_for_one_round_in_one_mode_and_are_warmed_up(stage):
    await runs_of(stage.bench(PLAIN, rounds=2, modes=MODES))
    assert [event[1] for event in stage.log] == ["up", "warm-up", "a", "b", "a", "b", "down"] * 4


def test_the_order_changes_from_turn_to_turn_and_each_system_comes_first():
    orders = [[system.name for system in in_turn((PLAIN, FAST, ORACLE), i)] for i in range(6)]
    assert {order[0] for order in orders} == {"plain", "fast", "oracle"}
    assert all(sorted(order) == ["fast", "oracle", "plain"] for order in orders)
    assert orders[0] != orders[1] != orders[2]


async def test_the_oracle_replays_what_plain_said_and_waits_for_it_the_first_time(stage):
    stage.ids["plain"] = (4, 5)
    await runs_of(stage.bench(ORACLE, PLAIN, rounds=3))
    asked = [
        known
        for name, what, *rest in stage.log
        if name == "oracle" and rest and what != "warm-up"
        for known in rest[1:]
    ]
    assert asked == ['{"tokens": [4, 5]}'] * 12


async def test_ids_are_compared_with_the_own_plain_ones(stage):
    stage.ids["fast"] = (1, 2, 9)
    runs = await runs_of(stage.bench(PLAIN, FAST, ORACLE))
    assert {(run.system, run.equal) for run in runs} == {("plain", None), ("fast", False), ("oracle", True)}


async def test_what_a_server_cost_is_read_once_it_has_answered_everything(stage):
    @dataclass
    class Process:
        log: list
        gone: bool = False
        load_seconds = 1.5

        def memory(self):
            self.log.append(("memory", "read"))
            return None if self.gone else HeldMemory(200, 300)

    stage.processes = {"plain": Process(stage.log), "oracle": Process(stage.log, gone=True)}
    bench = stage.bench(PLAIN, FAST, ORACLE, rounds=2)
    await runs_of(bench)
    assert bench.loads == [Load("plain", "greedy", number, 1.5, 200, 300) for number in range(2)]
    at = [i for i, event in enumerate(stage.log) if event[0] == "memory"]
    assert all(stage.log[i - 1][1] != "up" for i in at)
    assert [stage.log[i + 1][1] for i in at[1::2]] == ["down", "down"]


async def test_a_system_that_does_not_load_is_left_out_and_named(stage):
    stage.errors["fast"] = "load"
    benchmark = stage.bench(PLAIN, FAST)
    assert {run.system for run in await runs_of(benchmark)} == {"plain"}
    assert benchmark.failures == {"fast": "it does not load"}


async def test_a_system_that_fails_in_between_is_not_asked_again(stage):
    stage.errors["fast"] = EngineError("a forward failed")
    benchmark = stage.bench(PLAIN, FAST, rounds=2)
    runs = await runs_of(benchmark)
    assert len([run for run in runs if run.system == "plain"]) == 8
    assert [event[1] for event in stage.log if event[0] == "fast" and event[1] in ("a", "b")] == ["a"]
    assert benchmark.failures == {"fast": "a forward failed"}


async def test_without_the_system_that_others_are_compared_to_nothing_goes_on(stage):
    stage.errors["plain"] = EngineError("a forward failed")
    with pytest.raises(WorldError, match="plain, to which others are compared, failed: a forward failed"):
        await runs_of(stage.bench(PLAIN, FAST))
    assert stage.log[-2:] == [("fast", "down"), ("plain", "down")]


async def test_whoever_stops_in_the_middle_leaves_no_server_behind(stage):
    async with contextlib.aclosing(stage.bench(PLAIN, FAST).run()) as runs:
        await anext(runs)
    assert stage.log[-2:] == [("fast", "down"), ("plain", "down")]
