"""A child process watched by a thread: what `child_server` is where there is no event loop.

Drafters load on the threads of their pool, and a loop that has ended takes the processes that it started with it; so
whatever they start is read by a thread, and waited for where it is needed.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from pilotfish.daemon.processes.last_words import LastWords, how_it_ended
from pilotfish.daemon.processes.parent_death import tied_environment

if TYPE_CHECKING:
    from io import BufferedReader

log = logging.getLogger("pilotfish.processes")

STOP_SECONDS = 5.0  # from SIGTERM to SIGKILL
NOTICE_SECONDS = 0.5  # from a broken connection to the end of the process, if that was the reason


class ThreadedChild:
    """A tied child (`parent_death`) in a session of its own, its output read, logged and remembered."""

    def __init__(
        self, command: Sequence[str], name: str, is_message: Callable[[str], bool], at_end: Callable[[], None]
    ) -> None:
        """Start it. The reading thread shows every line to `is_message`, as `LastWords` does, then calls `at_end`.

        Raises OSError when it cannot be started.
        """
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # never written: it closes when this process ends, however it ends
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=tied_environment(),
            start_new_session=True,  # a Ctrl-C for this process is not meant for it
        )
        self._name = f"{name} {self.pid}"
        self._words = LastWords(self._name, is_message)
        self._at_end = at_end
        self._reader = threading.Thread(target=self._read, name=f"child-{self.pid}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._process.poll()

    def has_ended(self) -> bool:
        """Whether it is gone, or goes within a moment: a broken connection may come before the end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(NOTICE_SECONDS)
        return self.exit_code is not None

    def last_words(self) -> str:
        """How it ended and what it said last, in one line."""
        if self.has_ended():
            self._reader.join(NOTICE_SECONDS)
        return ": ".join(filter(None, (how_it_ended(self.exit_code), " / ".join(self._words.lines))))

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after a grace. Returns when it is gone; safe to call twice."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            log.warning("%s ignored SIGTERM for %.0f s; it is killed", self._name, STOP_SECONDS)
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None  # a pipe
        self._process.stdin.close()
        self._reader.join(STOP_SECONDS)

    def _read(self) -> None:
        assert self._process.stdout is not None  # a pipe
        try:
            with cast("BufferedReader", self._process.stdout) as output:  # no `bufsize` is asked for
                while data := output.read1(1 << 16):
                    self._words.hear(data)
                self._words.end()
        finally:
            self._at_end()
