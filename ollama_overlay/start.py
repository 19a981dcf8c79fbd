"""What the shim starts: the runner on its floor or, when even importing it fails, the stock llama-server.

Nothing is imported here that an incomplete installation could lack: all of it was imported to decide, a moment ago.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.runner.launch_arguments import model_path
from pilotfish.ollama_overlay.attempts import Attempts
from pilotfish.ollama_overlay.ollama_libraries import load_backends
from pilotfish.ollama_overlay.shim_script import LIBRARY_FOLDER
from pilotfish.ollama_overlay.stock import become_stock, stock_server


def main(argv: Sequence[str] | None = None) -> int:
    """Run until told to stop; returns the exit code, if this process is not replaced."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        if stock_server() and (folder := os.environ.get(LIBRARY_FOLDER)):
            _load_backends(Path(folder), arguments)
        run = _runner()
        _show_as("pilotfish")
    except BaseException as error:  # a package that calls sys.exit as it is imported is no better than one that lacks
        if stock_server() is None or isinstance(error, KeyboardInterrupt):
            raise
        become_stock(f"the runner cannot be started ({type(error).__name__}: {error})", arguments)
    return run(arguments)


def _load_backends(folder: Path, arguments: Sequence[str]) -> None:
    """A library that crashes here crashes at every load, so it counts as the load does."""
    with Attempts(state_dir(), model_path(arguments)).watched():
        load_backends(folder)


def _runner() -> Callable[[Sequence[str]], int]:
    """The runner, standing on its floor."""
    from pilotfish.daemon.runner.main import main as run
    from pilotfish.ollama_overlay.stock_floor import floor_of_this_process

    return partial(run, floor=floor_of_this_process())


def _show_as(name: str) -> None:
    """Have `top` and the like show whose process this is, where the system takes a name (Linux) instead of Python's."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name, encoding="ascii")


if __name__ == "__main__":
    sys.exit(main())
