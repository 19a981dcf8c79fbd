"""`pilotfish overlay`: put pilotfish under an existing Ollama, look at it, start it, take it away."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

import click

from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.kernels.kernel_building import make_kernels
from pilotfish.hooks.errors import UsageError
from pilotfish.ollama_overlay import tree
from pilotfish.ollama_overlay.bytecode import compile_for_loads
from pilotfish.ollama_overlay.companion import start_daemon
from pilotfish.ollama_overlay.outlook import look
from pilotfish.ollama_overlay.service import permanent_lines

_PREFIX = click.option(
    "--prefix", type=click.Path(path_type=Path), help="The overlay's folder; by default one in the user's data folder."
)


@click.group("overlay")
def overlay() -> None:
    """Speculative rounds under an existing Ollama, whose installation stays as it is."""


@overlay.command("install")
@click.option("--ollama", type=click.Path(path_type=Path), help="Your ollama binary; by default the first one found.")
@_PREFIX
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def install(ollama: Path | None, prefix: Path | None, as_json: bool) -> None:
    """Make the overlay, or repair it after an update of Ollama, and say what each model will run on."""
    place = prefix or tree.default_prefix()
    with err.status("Reading Ollama's binary and libraries (the first time, every library is hashed)"):
        found, changed = tree.install(place, ollama, state_dir())
    with err.status("Compiling the Python modules that every load imports"):
        compile_for_loads()
    place = place.expanduser().absolute()
    with err.status("Compiling kernels for models with float weights"):
        kernels = make_kernels()
    with err.status("Looking at the engines and at your models"):
        prospect = look(found.original.library, state_dir())
    if as_json:
        made = {"prefix": place, "changed": changed, "record": dataclasses.asdict(found)}
        click.echo(json.dumps({**made, **dataclasses.asdict(prospect), "kernels": kernels}, default=str))
        return
    _print(f"{'installed' if changed else 'already up to date'}: {place}")
    _print(f"from Ollama {found.build}: {found.original.binary}")
    for line in prospect.lines():
        _print(line)
    _print(f"\nkernels for float weights\n  {kernels}")
    _print("\nstart it now:\n  pilotfish overlay run" + (f" --prefix {place}" if prefix else ""))
    _print("\nor make it permanent with these two lines:")
    for line in permanent_lines(place, sys.platform):
        _print(f"  {line}")


@overlay.command("status")
@_PREFIX
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def status(prefix: Path | None, as_json: bool) -> None:
    """Say what is installed and whether it still fits the Ollama it was made from. Exit code 1 when it does not."""
    found = tree.status(prefix or tree.default_prefix(), state_dir())
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found), default=str))
    elif found.record is None:
        _print(f"no overlay is installed in {found.prefix}; make one with: pilotfish overlay install")
    else:
        _print(f"{found.prefix}\nfrom Ollama {found.record.build}: {found.record.original.binary}")
        _print("it fits" if not found.drift else "\n".join(("it does not fit any more:", *found.drift)))
        if found.drift:
            _print("repair it with: pilotfish overlay install")
    sys.exit(0 if found.record and not found.drift else 1)


@overlay.command("remove")
@_PREFIX
def remove(prefix: Path | None) -> None:
    """Take the overlay away; your Ollama is as it was."""
    place = prefix or tree.default_prefix()
    tree.remove(place)
    _print(f"removed: {place.expanduser().absolute()}")


@overlay.command("run", context_settings={"ignore_unknown_options": True})
@_PREFIX
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(prefix: Path | None, arguments: tuple[str, ...]) -> None:
    """Start `ollama serve`, or `ollama` with the ARGUMENTS after `--`, from the overlay.

    Beside a server pilotfish's daemon runs, unless one does already; it ends when the server does.
    """
    found = tree.status(prefix or tree.default_prefix(), state_dir())
    if found.record is None:
        raise UsageError(f"no overlay is installed in {found.prefix}; make one with: pilotfish overlay install")
    for line in found.drift:
        err.print(f"{line}; repair the overlay with: pilotfish overlay install", style="yellow", markup=False)
    binary, words = found.prefix / tree.BINARY, arguments or ("serve",)
    if words[0] == "serve" and (why := start_daemon()):
        err.print(f"no daemon: {why}; the models use the config as they load", style="yellow", markup=False)
    os.execv(binary, [str(binary), *words])


def _print(text: str) -> None:
    out.print(text, markup=False, soft_wrap=True)
