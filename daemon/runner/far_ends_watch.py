"""What becomes of a runner whose far ends are lost, or fall silent: its requests end with the reason, and so does it.

The engine's library ends the process in the middle of a forward where a connection breaks, and waits for ever where
nothing comes. So requests are ended first, from another thread than the engine's, which will never come back.

A block of a prompt may take a large model longer than a deadline that notices a machine which is gone. So once that is
over, far ends are looked at: those that can tell that they still compute are given PATIENCE times as long.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence

from pilotfish.daemon.farends.looking import FarEndSeen, look
from pilotfish.daemon.runner.engine_thread import EngineThread
from pilotfish.hooks.protocols import SpansMachines

log = logging.getLogger("pilotfish.runner")

GOODBYE = 10.0  # seconds that the event loop has to answer and to end the process, once a far end is lost
POLL_SECONDS = 1.0
PATIENCE = 10.0  # deadlines
SILENCE = 3.0  # seconds that what computes at a far end may leave its own host without an answer: the machine is busy

Looks = Callable[[Sequence[str]], Sequence[FarEndSeen]]


def end_with_far_ends(thread: EngineThread, engine: SpansMachines) -> None:
    """Have requests answered with the reason before the library ends this process for a lost far end."""

    def lost(why: str) -> None:
        thread.abandon(why)
        threading.Event().wait(GOODBYE)

    engine.when_lost(lost)


async def watch_far_ends(
    thread: EngineThread,
    engine: SpansMachines,
    deadline: float,
    poll_seconds: float = POLL_SECONDS,
    look_at: Looks = look,
) -> None:
    """Until one is lost while nothing is computed, or is silent for `deadline` seconds while something is."""
    silent = f"the far ends {', '.join(engine.far_ends)} were silent for"
    allowed = deadline
    while True:
        await asyncio.sleep(poll_seconds)
        taken = thread.engaged
        allowed = allowed if taken > deadline else deadline
        if taken > PATIENCE * deadline:
            return thread.abandon(f"{silent} {taken:.0f} s; raise [engine] rpc_deadline_s if they need longer")
        if taken > allowed:
            seen = await asyncio.to_thread(look_at, engine.far_ends)
            if thread.engaged < taken:  # it came to an end meanwhile
                continue
            if not all(map(_may_compute, seen)):
                return thread.abandon(f"{silent} {deadline:.0f} s; send the request again")
            if not any(far_end.silent_s for far_end in seen):  # else they are looked at again at once
                log.info("the far ends have computed one thing for %.0f s, and still do", taken)
                allowed = taken + deadline
        if not taken and (gone := await asyncio.to_thread(engine.gone)):
            verb = "has" if len(gone) == 1 else "have"
            return thread.abandon(f"the far end {', '.join(gone)} {verb} ended; the next request loads the model again")


def _may_compute(seen: FarEndSeen) -> bool:
    """Whether it tells that it serves somebody, as those of pilotfish's own do, and that its process is not stuck: a
    host is there for as long as its machine."""
    return bool(seen.busy) and seen.silent_s < SILENCE
