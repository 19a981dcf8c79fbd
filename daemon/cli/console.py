"""What the commands share: the console, logging, a model's own words, and how an error ends the program."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import NoReturn

import click
from rich.console import Console

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

# What a terminal obeys (C0, DEL and C1 but for tab and line break): text of a model must not move the cursor, set the
# title or write to the clipboard. A carriage return is among them: it lets one text hide behind another.
_COMMANDS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def configure_logging(verbose: int) -> None:
    """Log lines go to stderr: warnings, with `-v` what happens, with `-vv` everything."""
    level = _LEVELS[min(verbose, len(_LEVELS) - 1)]
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("pilotfish").setLevel(level)


def fail(message: str) -> NoReturn:
    """Say what went wrong and end with exit code 1."""
    err.print(f"Error: {harmless(message)}", style="red", markup=False, soft_wrap=True)
    sys.exit(1)


def harmless(text: str) -> str:
    """`text` without the characters that a terminal would obey; what is left of an escape sequence is shown."""
    return text.translate(_COMMANDS)


def write_words(text: str, colour: str = "") -> None:
    """What a model wrote, to stdout: byte for byte into a file or a pipe; a terminal gets all but what it would obey.

    Raises BrokenPipeError when nobody reads any more.
    """
    encoding = "utf-8"
    if sys.stdout.isatty():
        encoding = sys.stdout.encoding
        text = harmless(text)
        if colour and text and out.color_system and not out.no_color:
            text = click.style(text, fg=colour)
    sys.stdout.buffer.write(text.encode(encoding, "replace"))
    sys.stdout.buffer.flush()


def end_unread() -> NoReturn:
    """End as a program does whose reader went away: without a word, with the exit code that SIGPIPE gives."""
    # The interpreter flushes once more on its way out, which must not fail then.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(128 + signal.SIGPIPE)
