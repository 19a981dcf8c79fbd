"""`pilotfish kernels-build`: what lets models with float weights speculate on libllama."""

from __future__ import annotations

import click

from pilotfish.daemon.cli.console import err, out


@click.command("kernels-build")
def command() -> None:
    """Compile the kernels with which models in F16 and BF16, and those with experts, can speculate on libllama.

    ggml multiplies one row of floats in another way than several. These compute several as it computes one, bit for
    bit, and are tried against it first. Integer formats stay as they are; `[engine] kernels = "off"` leaves them out.
    """
    from pilotfish.daemon.kernels.kernel_building import build_kernels
    from pilotfish.daemon.kernels.kernels_here import folder_to_build_in

    err.print("Compiling (a few seconds).", style="dim")
    path, types = build_kernels(folder_to_build_in())
    out.print(f"kernels for {', '.join(types)} are in {path}", markup=False, soft_wrap=True)
