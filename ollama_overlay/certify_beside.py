"""Starting a certification beside the stock server that the shim's script is about to become."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pilotfish.ollama_overlay.shim_script import LIBRARY_FOLDER, STOCK
from pilotfish.ollama_overlay.stock import stock_environment, stock_server

MODULE = "pilotfish.daemon.certify.beside_stock"  # it imports more than the shim has time for


def certify_beside(pid: int, arguments: Sequence[str], *, ollama_libraries: bool) -> None:
    """Have `arguments` certified while the process `pid` idles. Raises nothing, and waits for nothing.

    The process is nobody's child, because a stock server waits for none, and holds none of Ollama's pipes: Ollama waits
    for those.
    """
    import subprocess  # at most loads nothing is due

    command = [sys.executable, "-P", "-m", MODULE, str(pid), *arguments]
    nothing = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            env=runner_environment(ollama_libraries=ollama_libraries),
            start_new_session=True,
            check=False,
        )


def runner_environment(*, ollama_libraries: bool) -> Mapping[str, str]:
    """What a runner of this model gets: this process's, or, on Ollama's libraries, what Ollama gave."""
    server = stock_server()
    if not ollama_libraries or server is None:
        return os.environ
    return {**stock_environment(), STOCK: server, LIBRARY_FOLDER: str(Path(server).parent)}
