"""One runner process: its start, its last words, its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections import deque
from collections.abc import Sequence

from pilotfish.daemon.processes.parent_death import tied_environment

log = logging.getLogger("pilotfish.front.runner")

LAST_LINES = 8
STOP_GRACE = 5.0  # seconds between SIGTERM and SIGKILL


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RunnerProcess:
    """A child process whose output is read, logged and remembered.

    It leads a process group of its own, so that a Ctrl-C for the front does not also reach it: the front ends it.
    """

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.port = port
        self.last_sign_of_life = time.monotonic()
        self._process = process
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: Sequence[str], port: int) -> RunnerProcess:
        """Raises OSError when the command cannot be run."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,  # never written: it closes when this process ends, however it ends
            env=tied_environment(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            process_group=0,
        )
        log.debug("started runner %d: %s", process.pid, " ".join(command))
        return cls(process, port)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._process.returncode

    async def last_words(self) -> str:
        """How it ended and what it said last, for an error message."""
        ending = asyncio.gather(self._process.wait(), asyncio.shield(self._reader))
        with contextlib.suppress(TimeoutError):  # it may live on, and a child of it may hold the pipe open
            await asyncio.wait_for(ending, 1.0)
        code = self.exit_code
        how = "is still running" if code is None else f"ended by signal {-code}" if code < 0 else f"exit code {code}"
        return ": ".join((how, "\n".join(self._lines))) if self._lines else how

    async def wait(self) -> None:
        """Until it has ended."""
        await self._process.wait()

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL after a grace. Returns when it is gone; safe to call twice."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), STOP_GRACE)
            except TimeoutError:
                log.warning("runner %d ignored SIGTERM for %.0f s; killing it", self.pid, STOP_GRACE)
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        assert self._process.stdout is not None  # asked for in start
        partial = b""
        while chunk := await self._process.stdout.read(65536):
            self.last_sign_of_life = time.monotonic()
            *lines, partial = (partial + chunk).split(b"\n")
            for line in lines:
                self._note(line)
            partial = partial[-65536:]
        self._note(partial)

    def _note(self, line: bytes) -> None:
        if text := line.decode("utf-8", "replace").strip():
            self._lines.append(text[-500:])
            log.debug("runner %d: %s", self.pid, text)
