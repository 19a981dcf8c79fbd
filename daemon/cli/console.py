"""What the commands share: the console, logging, and how an error ends the program."""

from __future__ import annotations

import logging
import sys
from typing import NoReturn

from rich.console import Console

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def configure_logging(verbose: int) -> None:
    """Log lines go to stderr: warnings, with `-v` what happens, with `-vv` everything."""
    level = _LEVELS[min(verbose, len(_LEVELS) - 1)]
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("pilotfish").setLevel(level)


def fail(message: str) -> NoReturn:
    """Say what went wrong and end with exit code 1."""
    err.print(f"Error: {message}", style="red", markup=False, soft_wrap=True)
    sys.exit(1)
