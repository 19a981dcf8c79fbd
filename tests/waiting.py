"""Waiting for what other threads, processes and machines do: a condition is asked again until it holds.

The bound is no expectation of speed: it is far more than anything takes, so that only what never comes fails.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psutil

T = TypeVar("T")

SECONDS = 60.0
PAUSE = 0.01  # seconds between two looks


async def until(
    condition: Callable[[], T | Awaitable[T]],
    otherwise: str = "it never came to be",
    seconds: float = SECONDS,
    pause: float = PAUSE,
) -> T:
    """What `condition` gives, or what that gives when awaited, once it is true; fails with `otherwise` if it never is.

    Every look lets the event loop go on; where the clock of the loop stands still, only a pause of 0 ever ends.
    """
    end = time.monotonic() + seconds
    while True:
        seen = condition()
        value: T = await seen if inspect.isawaitable(seen) else seen  # type: ignore[assignment]  # not awaitable: a T
        if value:
            return value
        assert time.monotonic() < end, _failure(otherwise, seconds, value)
        await asyncio.sleep(pause)


def wait_until(condition: Callable[[], T], otherwise: str = "it never came to be", seconds: float = SECONDS) -> T:
    """What `condition` gives once it is true; fails with `otherwise` if it never is. Blocks the thread meanwhile."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, _failure(otherwise, seconds, value)
        time.sleep(PAUSE)
    return value


def is_gone(process: psutil.Process) -> bool:
    """Whether a process has ended; one that its parent has not waited for yet has, too."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _failure(otherwise: str, seconds: float, value: object) -> str:
    return f"{otherwise} (waited {seconds:g} s; at last it was {value!r})"
