"""What the shim starts: the runner or, when even importing it fails, the stock llama-server.

Nothing is imported here that an incomplete installation could lack.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pilotfish.ollama_overlay.ollama_libraries import load_backends
from pilotfish.ollama_overlay.shim_script import LIBRARY_FOLDER
from pilotfish.ollama_overlay.stock import become_stock, stock_server


def main(argv: Sequence[str] | None = None) -> int:
    """Run until told to stop; returns the exit code, if this process is not replaced."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        if stock_server() and (folder := os.environ.get(LIBRARY_FOLDER)):
            load_backends(Path(folder))
        run = _runner()
    except Exception as error:
        if stock_server() is None:
            raise
        become_stock(f"the runner cannot be started ({type(error).__name__}: {error})", arguments)
    return run(arguments)


def _runner() -> Callable[[Sequence[str]], int]:
    from pilotfish.ollama_overlay.runner import main as run

    return run


if __name__ == "__main__":
    sys.exit(main())
