"""`pilotfish`: the command line. Each command is a module of its own and imports what it needs when it runs."""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import sys
from typing import Any

import click

from pilotfish import __version__
from pilotfish.daemon.cli.console import configure_logging, fail
from pilotfish.hooks.errors import PilotfishError

log = logging.getLogger("pilotfish.cli")

COMMANDS = {  # name -> module, and the command in it when that is not called `command`
    "bench": "bench",
    "certificates": "certificates",
    "certify": "certify",
    "compare": "compare",
    "conformance": "conformance",
    "daemon": "daemon",
    "demo": "demo",
    "diagnose": "diagnose",
    "doctor": "doctor",
    "draft-host": "draft_host",
    "explain": "explain",
    "import-mlx": "import_mlx",
    "kernels-build": "kernels_build",
    "lab": "lab",
    "memory": "memory",
    "models": "models",
    "pair": "pair",
    "parity": "parity",
    "receipt": "receipt",
    "off": "toggle:off",
    "on": "toggle:on",
    "open": "open",
    "rpc-build": "rpc_build",
    "rpc-host": "rpc_host",
    "run": "run",
    "serve": "serve",
    "status": "status",
    "top": "top",
    "validate": "validate",
}
COMMAND_ENTRY_POINTS = "pilotfish.commands"  # what other parts, and other distributions, add


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *importlib.metadata.entry_points(group=COMMAND_ENTRY_POINTS).names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            added = importlib.metadata.entry_points(group=COMMAND_ENTRY_POINTS, name=cmd_name)
            return next((point.load() for point in added), None)
        name, _, attribute = COMMANDS[cmd_name].partition(":")
        module = importlib.import_module(f"pilotfish.daemon.cli.{name}")
        command: click.Command = getattr(module, attribute or "command")
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pilotfish")
@click.option("-v", "--verbose", count=True, help="More log lines on stderr; twice for all of them.")
def cli(verbose: int) -> None:
    """Speculative decoding for Ollama models: faster answers, the same tokens."""
    configure_logging(verbose)


def main(args: list[str] | None = None) -> Any:
    """The console script: errors raised on purpose, and the system's about a file, become one line and exit code 1."""
    try:
        return cli.main(args=args, prog_name="pilotfish", standalone_mode=True)
    except PilotfishError as error:
        fail(str(error))
    except OSError as error:
        if error.filename is None:
            raise
        log.debug("%s", error, exc_info=error)
        fail(f"{error.filename}: {error.strerror}; check that it is there, its owner and its mode")
    except KeyboardInterrupt:
        sys.exit(130)
