"""The line by which Ollama knows why a server that it started fails.

Of what one writes to its standard error Ollama keeps the lines that begin in certain ways, and shows them to the client
whose load failed, or whose answer broke off.
"""

from __future__ import annotations

import logging
import sys

_log = logging.getLogger("pilotfish.error")
_LONGEST = 4096  # characters
_VERIFIERS = logging.getLogger("pilotfish.verifiers")


def show_to_ollama() -> None:
    """From now on, what `say_why` is told goes to standard error in that form, and what an engine says before it ends
    the process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("error: %(message)s"))
    _log.addHandler(handler)
    _log.propagate = False
    ends = logging.StreamHandler(sys.stderr)
    ends.setFormatter(handler.formatter)
    ends.setLevel(logging.CRITICAL)
    _VERIFIERS.addHandler(ends)


def say_why(why: str) -> None:
    """In one line, of bounded length."""
    _log.error("%s", " ".join(why.split())[:_LONGEST])
