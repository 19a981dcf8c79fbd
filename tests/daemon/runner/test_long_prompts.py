"""Which engine is asked to read long prompts apart, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine
from pilotfish.daemon.runner.long_prompts import long_prompts_read, read_long_prompts


class ReadsApart(FakeEngine):
    """A fake engine that is told."""

    free: Callable[[], int] | None = None

    def read_prompts_fast(self, free: Callable[[], int]) -> None:
        self.free = free

    @property
    def prompts_read(self) -> str:
        return "somewhere" if self.free else "in the lane"


@pytest.mark.parametrize(("how", "where"), [("fast", "somewhere"), ("lane", "in the lane")])
def test_the_config_decides(how: str, where: str) -> None:
    engine = ReadsApart()
    read_long_prompts(engine, how, lambda: 5)
    assert long_prompts_read(engine) == where


def test_an_engine_that_knows_one_way_reads_in_its_lane() -> None:
    engine = FakeEngine()
    read_long_prompts(engine, "fast", lambda: 5)
    assert long_prompts_read(engine) == "in the lane"
