"""Far ends on this machine: `pilotfish rpc-host` in processes of their own."""

from __future__ import annotations

import contextlib
import json
import queue
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pilotfish.daemon.processes.threaded_child import ThreadedChild
from pilotfish.hooks.errors import EngineError

COMMAND = (sys.executable, "-m", "pilotfish.daemon.cli", "rpc-host")
STARTING = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class HostSize:
    """What each far end may take: threads, and MiB of memory (None: as much as there is)."""

    threads: int = 1
    memory: int | None = None


@contextlib.contextmanager
def far_hosts(
    count: int, size: HostSize, libllama: str = "", command: Sequence[str] = COMMAND
) -> Iterator[tuple[tuple[str, int], ...]]:
    """The addresses of `count` far ends on 127.0.0.1, which end with the block. Raises EngineError."""
    limit = ["--memory", str(size.memory)] if size.memory else []
    words = [*command, "--host", "127.0.0.1:0", "--json", "--threads", str(size.threads), *limit]
    words += ["--libllama", libllama] if libllama else []
    with contextlib.ExitStack() as stack:
        yield tuple([stack.enter_context(_host(words)) for _ in range(count)])


@contextlib.contextmanager
def _host(words: Sequence[str]) -> Iterator[tuple[str, int]]:
    heard: queue.SimpleQueue[str] = queue.SimpleQueue()

    def hear(line: str) -> bool:
        """On the child's reading thread."""
        with contextlib.suppress(ValueError, KeyError, TypeError):
            heard.put(str(json.loads(line)["endpoint"]))
            return True
        return False

    child = ThreadedChild(words, "rpc-host", hear, lambda: heard.put(""))
    try:
        try:
            endpoint = heard.get(timeout=STARTING)
        except queue.Empty:
            endpoint = ""
        if not endpoint:
            raise EngineError(f"a far end did not start: {child.last_words()}")
        host, _, port = endpoint.rpartition(":")
        yield host, int(port)
    finally:
        child.stop()
