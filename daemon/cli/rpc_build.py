"""`pilotfish rpc-build`: libllama with RPC, for models that are split over several machines."""

from __future__ import annotations

from pathlib import Path

import click

from pilotfish.daemon.cli.console import err, out

_FILE = click.Path(path_type=Path)


@click.command("rpc-build")
@click.option("--output", type=_FILE, metavar="DIR", help="The folder to make. Default: in pilotfish's cache folder.")
@click.option(
    "--source",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="The source package of llama-cpp-python (.tar.gz), instead of downloading it.",
)
def command(output: Path | None, source: Path | None) -> None:
    """Make a folder with the installed libllama and libggml-rpc, which its packages come without.

    The engine itself stays as it is: only its RPC backend is compiled, in seconds, of the sources of the same version.
    """
    from pilotfish.daemon.config.paths import cache_dir
    from pilotfish.daemon.rpchost.rpc_building import FOLDER, build

    folder = (output or cache_dir() / FOLDER).absolute()
    build(folder, cache_dir(), source, lambda line: err.print(line, style="dim", soft_wrap=True))
    out.print(f"libllama with RPC is in {folder}", markup=False, soft_wrap=True)
