"""A reader of files as a target: it raises what it promises, or nothing, within five seconds of the processor."""

from __future__ import annotations

import contextlib
import signal
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from random import Random

import psutil

from tests.fuzz.campaign import SECONDS, Case, Fault, Usage
from tests.fuzz.mutations import Mutator


class Files:
    """A reader as a target, with a folder of its own. Subclasses say what is sound, how to break it, how to read it."""

    name = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, random: Random) -> Case:
        """A broken file."""
        return Case(self.name, self.broken(Mutator(random)))

    def take(self, case: Case) -> None:
        """Read it. What a reader did not promise to raise is a fault, and so is taking too long."""
        try:
            with _limited():
                self.read(case.data)
        except _TooLong as error:
            said = "".join(traceback.format_exception(error))
            raise Fault("more than 5 s of the processor", said, slow=True) from error
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(at.filename).name}:{at.name}"
            raise Fault(f"{type(error).__name__} in {where}", "".join(traceback.format_exception(error))) from error

    def probe(self) -> None:
        """The sound file can be read."""
        self.take(Case(self.name, self.sound()))

    def usage(self) -> Usage:
        """Of this process."""
        process = psutil.Process()
        return Usage(process.memory_info().rss, process.num_fds())

    def sound(self) -> bytes:
        raise NotImplementedError

    def broken(self, mutator: Mutator) -> bytes:
        raise NotImplementedError

    def read(self, data: bytes) -> None:
        raise NotImplementedError


class _TooLong(Exception):
    pass


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raises _TooLong in what takes more than five seconds of the processor; other processes' time does not count."""

    def stop(number: int, frame: types.FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
