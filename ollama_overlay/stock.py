"""Becoming the stock llama-server, in the process that Ollama started."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from pilotfish.ollama_overlay.shim_script import LIBRARY_FOLDER, SAVED, STOCK


def stock_server(environment: Mapping[str, str] = os.environ) -> str | None:
    """The path of the stock llama-server; None when the shim did not start this process."""
    return environment.get(STOCK)


def stock_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment that Ollama gave: what the shim set is gone, what it changed has its old value."""
    saved = {name.removeprefix(SAVED): value for name, value in environment.items() if name.startswith(SAVED)}
    kept = {name: value for name, value in environment.items() if name != STOCK and not name.startswith(SAVED)}
    if kept.get(LIBRARY_FOLDER) == str(Path(environment.get(STOCK, "")).parent):  # set by the shim, and by nobody else
        del kept[LIBRARY_FOLDER]
    return kept | saved


def become_stock(reason: str, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> NoReturn:
    """Replace this process by the stock llama-server with arguments `argv`, after a line that says why.

    An empty `reason` was said before. Its `environment` is by default the one that Ollama gave, as far as this process
    left it as it was. The port that this process listened on must be closed. Raises OSError when the server cannot be
    started.
    """
    server = stock_server()
    assert server is not None  # asked before
    if reason:
        sys.stderr.write(f"pilotfish: stock llama-server: {reason}\n")
        sys.stderr.flush()
    # Python ignores these, and what is ignored stays so in the next program.
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGPIPE, signal.SIGXFSZ)}
    try:
        os.execve(server, [server, *argv], stock_environment() if environment is None else environment)
    finally:  # it cannot be started, and this process goes on
        for number, handler in before.items():
            signal.signal(number, handler)
