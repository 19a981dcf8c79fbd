"""What becomes of a runner whose far ends are lost, or fall silent: its requests end with the reason, and so does it.

The engine's library ends the process in the middle of a forward where a connection breaks, and waits for ever where
nothing comes. So requests are ended first, from another thread than the engine's, which will never come back.
"""

from __future__ import annotations

import asyncio
import logging
import threading

from pilotfish.daemon.runner.engine_thread import EngineThread
from pilotfish.hooks.protocols import SpansMachines

log = logging.getLogger("pilotfish.runner")

GOODBYE = 10.0  # seconds that the event loop has to answer and to end the process, once a far end is lost
POLL_SECONDS = 1.0


def end_with_far_ends(thread: EngineThread, engine: SpansMachines) -> None:
    """Have requests answered with the reason before the library ends this process for a lost far end."""

    def lost(why: str) -> None:
        thread.abandon(why)
        threading.Event().wait(GOODBYE)

    engine.when_lost(lost)


async def watch_far_ends(
    thread: EngineThread, engine: SpansMachines, deadline: float, poll_seconds: float = POLL_SECONDS
) -> None:
    """Until one is lost while nothing is computed, or is silent for `deadline` seconds while something is."""
    while True:
        await asyncio.sleep(poll_seconds)
        if thread.engaged > deadline:
            silent = f"the far ends {', '.join(engine.far_ends)} were silent for {deadline:.0f} s"
            return thread.abandon(f"{silent}; send the request again")
        if not thread.engaged and (gone := await asyncio.to_thread(engine.gone)):
            verb = "has" if len(gone) == 1 else "have"
            return thread.abandon(f"the far end {', '.join(gone)} {verb} ended; the next request loads the model again")
