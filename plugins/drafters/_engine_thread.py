"""One thread for an engine that ties what it made to the thread that made it.

Both engines here do: tinygrad keeps one connection to its kernel cache in the process, and sqlite refuses it to every
thread but the first; MLX's streams belong to a thread. pilotfish loads a drafter on one thread and drafts on another.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from pilotfish.hooks.errors import EngineError, PilotfishError

P = ParamSpec("P")
T = TypeVar("T")


class EngineThread:
    """Runs an engine's calls one after another, always on the same thread. Starts it at the first call."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=engine)

    def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What `call` returns or raises; an error that is not pilotfish's own becomes an EngineError.

        What is waited for costs about 30 µs more than a direct call.
        """
        try:
            return self._pool.submit(call, *args, **kwargs).result()
        except PilotfishError:
            raise
        except Exception as error:  # the engines raise whatever their layers raise, assertions included
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise EngineError(f"{self._engine} failed: {what}") from error
