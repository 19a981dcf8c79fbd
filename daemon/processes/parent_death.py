"""A child of ours that ends when the process that started it is gone, however that one ended.

The parent holds the child's standard input open and never writes; the system closes it with the parent. Which of the
three ways to notice is right depends on what the child does: `when_let_go` calls back on its event loop, where it can
end in order; `end_at_once_when_let_go` has the kernel end it, while an engine keeps the interpreter to itself and no
loop turns; `end_with_stdin` is for a child that computes and has no loop. One whose parent becomes another program,
which keeps no pipe for it, looks who its parent is: `when_orphaned`. Programs that are not ours are started by
`tied`, and a child whose standard input carries calls ends with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable

_VARIABLE = "PILOTFISH_TIED"
_LOOK_SECONDS = 0.5


def tied_environment() -> dict[str, str]:
    """The environment for a child whose standard input is a pipe that this process keeps open."""
    return {**os.environ, _VARIABLE: "stdin"}


def when_let_go(callback: Callable[[], None]) -> None:
    """Call `callback` on the running event loop once the parent is gone, if this process was started tied."""
    if os.environ.pop(_VARIABLE, "") != "stdin":
        return
    loop, end = asyncio.get_running_loop(), sys.stdin.fileno()

    def let_go() -> None:
        loop.remove_reader(end)
        callback()

    loop.add_reader(end, let_go)


@contextlib.asynccontextmanager
async def when_orphaned(parent: int | None, callback: Callable[[], None]) -> AsyncIterator[None]:
    """Call `callback` once this process is no child of `parent` any more, while the block lasts; never with None."""

    async def look() -> None:
        while os.getppid() == parent:  # noqa: ASYNC110 - the system tells nobody but the new parent
            await asyncio.sleep(_LOOK_SECONDS)
        callback()

    looking = asyncio.create_task(look()) if parent is not None else None
    try:
        yield
    finally:
        if looking is not None:
            looking.cancel()


def end_at_once_when_let_go() -> None:
    """Have the kernel end this process when its parent is gone, if it was started tied; call before `when_let_go`.

    The parent's end of standard input closes; SIGIO, which nobody handles, ends the process. Linux only: elsewhere
    the event loop has to notice.
    """
    if sys.platform == "linux" and os.environ.get(_VARIABLE) == "stdin":
        end = sys.stdin.fileno()
        fcntl.fcntl(end, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(end, fcntl.F_GETFL) | os.O_ASYNC)


def end_with_stdin() -> None:
    """End this process with code 1, whatever it is doing, once standard input ends."""
    threading.Thread(target=_read_to_the_end, daemon=True).start()


def _read_to_the_end() -> None:
    while sys.stdin.readline():
        pass
    os._exit(1)
