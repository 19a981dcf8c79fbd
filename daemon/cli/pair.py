"""`pilotfish pair`: whether a drafter suits a target, before either is loaded."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pilotfish.daemon.cli.console import out
from pilotfish.daemon.drafters.admission import size
from pilotfish.daemon.drafters.memory_bounds import CPU

if TYPE_CHECKING:
    from pilotfish.daemon.drafters.pairing import Memory, Pairing
    from pilotfish.hooks.types import Footprint


@click.command("pair")
@click.argument("target")
@click.argument("drafter")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
@click.option("--context", "n_ctx", default=4096, show_default=True, type=click.IntRange(64), help="Tokens of context.")
def command(target: str, drafter: str, as_json: bool, root: Path | None, n_ctx: int) -> None:
    """Say how DRAFTER would draft for TARGET: the bridge, what passes over it, the memory, and a verdict.

    TARGET is a name in the store or a .gguf file; DRAFTER may also be a tokenizer.json, a tokenizer.model, or a
    folder with either. Ends with exit code 1 when the pair is not worth trying on this machine.
    """
    from pilotfish.daemon.drafters.local_host import LocalHost
    from pilotfish.daemon.drafters.pairing import pair
    from pilotfish.hooks.types import EngineOptions
    from pilotfish.manifests.store import Store

    found = pair(target, drafter, LocalHost(Store(root) if root else None), EngineOptions(n_ctx=n_ctx))
    usable, _ = found.verdict
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=2))
    else:
        _show(found)
    sys.exit(0 if usable else 1)


def _show(pairing: Pairing) -> None:
    usable, reason = pairing.verdict
    _say(f"{pairing.drafter} drafting for {pairing.target}")
    _say(f"  bridge: {pairing.bridge or 'none'} ({pairing.how})")
    _say(
        f"  vocabulary: {pairing.mapped:,} of the target's {pairing.target_vocab:,} ids are among the drafter's "
        f"{pairing.drafter_vocab:,}"
    )
    if pairing.text_coverage is not None:
        _say(f"  in a sample text {pairing.text_coverage:.0%} of the target's tokens are cut alike by the drafter")
    if pairing.tokens_ratio is not None and pairing.bridge != "identity":
        _say(f"  the drafter writes {pairing.tokens_ratio:.2f} tokens for one of the target's")
    if pairing.unmapped:
        _say(f"  unknown to the drafter, for example: {' '.join(map(repr, pairing.unmapped))}")
    if pairing.memory:
        _show_memory(pairing.memory)
    _say(f"  verdict: {'yes' if usable else 'no'}, {reason}")


def _show_memory(memory: Memory) -> None:
    _say(f"  memory: target {_sum(memory.target)}")
    if memory.drafter:
        _say(f"          drafter {_sum(memory.drafter)}")
        where = "the system's memory" if memory.target.device == CPU else memory.target.device
        room = "which is there" if not memory.refusal else "which is not there"
        _say(f"          together {size(memory.needed)} of {where}, {room}")


def _sum(part: Footprint) -> str:
    where = "" if part.device == CPU else f" of {part.device}"
    return f"{size(part.weights)} weights + {size(part.cache)} cache = {size(part.total)}{where}"


def _say(line: str) -> None:
    out.print(line, markup=False, soft_wrap=True)
