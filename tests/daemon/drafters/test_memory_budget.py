"""The memory beside a target: who is let in, and how often it is looked at."""

from __future__ import annotations

import pytest

from pilotfish.daemon.drafters.admission import TargetMemory
from pilotfish.daemon.drafters.memory_bounds import Bound
from pilotfish.daemon.drafters.memory_budget import CHECK_EVERY, MemoryBudget
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.hooks.errors import AdmissionRefused
from pilotfish.hooks.types import Footprint

GB = 1 << 30
TARGET = TargetMemory("big:8b", 4 * GB, GB, taken=5 * GB)


class Memory:
    """A system with `free` bytes of 16 GiB."""

    def __init__(self, free: int) -> None:
        self.free, self.looks = free, 0

    def __call__(self, device: str) -> list[Bound]:
        self.looks += 1
        return [Bound("the system's memory", self.free, 16 * GB, lends=True)]


def test_what_fits_is_let_in_and_what_does_not_is_refused_with_the_sum():
    budget = MemoryBudget(lambda: TARGET, Memory(4 * GB))
    budget.admit("small", Footprint(GB, GB // 8), [])
    with pytest.raises(AdmissionRefused, match="big does not fit: weights 4096 MiB"):
        budget.admit("big", Footprint(4 * GB, GB), [])


def test_what_others_took_is_not_given_twice():
    budget = MemoryBudget(lambda: TARGET, Memory(4 * GB))
    with pytest.raises(AdmissionRefused):
        budget.admit("second", Footprint(2 * GB, 0), [Footprint(2 * GB, 0)])


@pytest.mark.parametrize(
    ("lends", "taken", "free"), [(True, 5 * GB, 4 * GB), (True, 3 * GB, 2 * GB), (False, 0, 4 * GB)]
)
def test_what_is_free_is_what_the_target_will_not_ask_for(lends: bool, taken: int, free: int):
    target = TargetMemory("big:8b", 4 * GB, GB, taken=taken)
    bounds = [Bound("the system's memory", 4 * GB, 16 * GB, lends), Bound("a limit", 9 * GB, 16 * GB, lends)]
    assert MemoryBudget(lambda: target, lambda device: bounds).free() == free


def test_nothing_is_free_where_nothing_is_known():
    assert MemoryBudget(lambda: TARGET, lambda device: []).free() == 0


def test_pressure_is_looked_at_once_a_second_however_many_requests_come():
    memory, clock = Memory(8 * GB), FakeClock()
    budget = MemoryBudget(lambda: TARGET, memory, clock)
    for _ in range(100):
        assert budget.pressed([Footprint(GB, 0)]) == ""
    assert memory.looks == 1
    memory.free = GB // 8
    clock.advance(CHECK_EVERY)
    assert "the target comes first" in budget.pressed([Footprint(GB, 0)])
