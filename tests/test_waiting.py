"""Both ways to wait give what they waited for, and say what never came to be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.waiting import until, wait_until


def third_time(value: object) -> Callable[[], object]:
    looks = iter([None, 0])
    return lambda: next(looks, value)


def test_the_condition_is_asked_again_until_it_holds() -> None:
    assert wait_until(third_time("here")) == "here"


async def test_so_it_is_on_the_event_loop() -> None:
    assert await until(third_time("here")) == "here"


async def test_there_the_condition_may_be_a_coroutine() -> None:
    look = third_time("here")

    async def ask() -> object:
        return look()

    assert await until(ask) == "here"


def test_what_never_comes_is_named_with_what_was_seen_last() -> None:
    with pytest.raises(AssertionError, match=r"nobody came \(waited 0 s; at last it was \[\]\)"):
        wait_until(list, "nobody came", seconds=0)


async def test_so_it_is_named_on_the_event_loop() -> None:
    with pytest.raises(AssertionError, match=r"nobody came \(waited 0 s; at last it was \[\]\)"):
        await until(list, "nobody came", seconds=0)
