"""A child that ends when the process that started it is gone, however that one ended.

The parent holds the child's standard input open and never writes; the system closes it with the parent.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

_VARIABLE = "PILOTFISH_TIED"


def tied_environment() -> dict[str, str]:
    """The environment for a child whose standard input is a pipe that this process keeps open."""
    return {**os.environ, _VARIABLE: "stdin"}


def is_tied() -> bool:
    """Whether this process was started tied, and has not asked yet to be told of its parent's end."""
    return os.environ.get(_VARIABLE) == "stdin"


def when_let_go(callback: Callable[[], None]) -> None:
    """Call `callback` on the running event loop once the parent is gone, if this process was started tied."""
    if os.environ.pop(_VARIABLE, "") != "stdin":
        return
    loop, end = asyncio.get_running_loop(), sys.stdin.fileno()

    def let_go() -> None:
        loop.remove_reader(end)
        callback()

    loop.add_reader(end, let_go)
