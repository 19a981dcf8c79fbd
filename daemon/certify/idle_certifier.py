"""Certifying while nobody asks for anything, in a process of its own that a request ends at once.

It is none of `processes.child_server`'s: it serves nobody, what it says is for the runner's own log, its standard input
carries the job, and it gets no grace, because whoever asks is waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence

from pilotfish.daemon.certify.background import MODULE, OUT_OF_TIME
from pilotfish.daemon.certify.made_again import MOST_TRIES
from pilotfish.hooks.environment import switched_off

log = logging.getLogger("pilotfish.certificates")

IDLE_SECONDS = 60.0
POLL_SECONDS = 0.2
MAX_PATIENCE = 16.0  # times the idle seconds: every attempt that came to nothing doubles the wait


class IdleCertifier:
    """Runs `command`, with `job` as its input, once `busy` was false for a while; again if it was interrupted, and
    `tries` times in all where its time runs out, as on a machine that others keep busy."""

    def __init__(
        self,
        job: str,
        busy: Callable[[], bool],
        *,
        command: Sequence[str] = (sys.executable, "-m", MODULE),
        idle_seconds: float = IDLE_SECONDS,
        poll_seconds: float = POLL_SECONDS,
        tries: int = 1,
    ) -> None:
        self.idle_seconds = idle_seconds  # may change at any time
        self._job = job
        self._busy = busy
        self._command = command
        self._poll = poll_seconds
        self._tries = tries
        self.interruptions = 0

    async def run(self) -> bool:
        """Returns whether a certificate was made, once the process ended by itself. Cancel to stop at any time."""
        while True:
            await self._until_quiet()
            code = await self._attempt()
            if code == OUT_OF_TIME:
                self._tries -= 1
            if code is not None and not (code == OUT_OF_TIME and self._tries):
                return code == 0
            self.interruptions += 1

    @property
    def _patience(self) -> float:
        return self.idle_seconds * float(min(2**self.interruptions, MAX_PATIENCE))

    async def _until_quiet(self) -> None:
        quiet = 0.0
        while quiet < self._patience:
            await asyncio.sleep(self._poll)
            quiet = 0.0 if self._busy() else quiet + self._poll

    async def _attempt(self) -> int | None:
        """The exit code, or None when a request came in between."""
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        assert process.stdin is not None
        try:
            with contextlib.suppress(ConnectionError):
                process.stdin.write(self._job.encode())
                await process.stdin.drain()
            while process.returncode is None:
                if self._busy():
                    return None
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), self._poll)
            return process.returncode
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # its probe is in the same session
                await process.wait()


def idle_certifier(job: str, busy: Callable[[], bool], idle_seconds: float = IDLE_SECONDS) -> IdleCertifier | None:
    """One for `job`, unless there is none or `PILOTFISH_CERTIFY=off` says that idle time is to stay idle."""
    wanted = job and not switched_off("PILOTFISH_CERTIFY")
    return IdleCertifier(job, busy, idle_seconds=idle_seconds, tries=MOST_TRIES) if wanted else None


@contextlib.asynccontextmanager
async def certifying(certifier: IdleCertifier | None, made: Callable[[], None] | None = None) -> AsyncIterator[None]:
    """Certify in idle moments until the block ends. `made` is called, on a thread, when there is a certificate."""
    task = asyncio.create_task(_certify(certifier, made)) if certifier else None
    try:
        yield
    finally:
        if task:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _certify(certifier: IdleCertifier, made: Callable[[], None] | None) -> None:
    if await certifier.run() and made is not None:
        try:
            await asyncio.to_thread(made)
        except Exception:
            log.exception("the new certificate counts from the next load on")
