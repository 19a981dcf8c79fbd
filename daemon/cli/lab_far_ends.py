"""`pilotfish lab far-ends`: what a model costs, spread over two far ends, by the delay of the network between."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

import click

from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.cli.lab_far_ends_tables import answers_table, forwards_table, verdicts
from pilotfish.daemon.config import files
from pilotfish.daemon.config.paths import cache_dir
from pilotfish.daemon.config.types import LIBLLAMA
from pilotfish.daemon.lab.demonstration import FORMAT, MODEL
from pilotfish.daemon.lab.spread.far_hosts import HostSize, far_hosts
from pilotfish.daemon.lab.spread.spread_row import SpreadSize
from pilotfish.daemon.registry.libllama_folder import LIBRARY_FOLDER
from pilotfish.hooks.errors import UsageError

DELAYS = "0,2,10,30"
LONGEST = 1000.0  # ms
SIZES = ("1b", "3b", "8b")
_SIZE = SpreadSize()
_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)


@click.command("far-ends")
@click.argument("model", default=MODEL)
@click.option("--libllama", type=_FOLDER, help="What `pilotfish rpc-build` made; the config's by default.")
@click.option("--quantization", help=f"Requantize to this format first; the demo's model to {FORMAT} by default.")
@click.option("--like", type=click.Choice(SIZES), help="The same text at the cost of so many billion weights.")
@click.option("--delays", default=DELAYS, show_default=True, help="Of the network, in ms one way, with commas.")
@click.option("--tokens", default=_SIZE.tokens, show_default=True, type=click.IntRange(2, 2000), help="Per answer.")
@click.option("--rounds", default=_SIZE.rounds, show_default=True, type=click.IntRange(1, 20), help="Of each pair.")
@click.option("--ends", default=2, show_default=True, type=click.IntRange(1, 16), help="How many far ends.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1, 256), help="Of each end.")
@click.option("--memory", type=click.IntRange(1), metavar="MIB", help="What the model may take of each far end.")
@click.option("--json", "report", type=click.Path(path_type=Path, dir_okay=False), help="Also write all of it there.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
def command(
    model: str,
    libllama: Path | None,
    quantization: str | None,
    like: str | None,
    delays: str,
    tokens: int,
    rounds: int,
    ends: int,
    threads: int,
    memory: int | None,
    report: Path | None,
    root: Path | None,
) -> None:
    """Measure MODEL over far ends on this machine, behind a network that is made slow on purpose.

    For each delay: what a step and wider blocks cost, which of them give a step's rows, and answers plain and
    speculative by turns, whose ids are compared with each other and, of greedy ones, with what the same split gives
    with libllama alone. Ends with 1 where ids differ, or a delay could not be measured.
    """
    from pilotfish.daemon.lab.spread.spread_course import SpreadCourse

    seconds = _delays(delays)
    folder = _use_libllama(libllama)
    path = _weights(model, quantization, like, root)
    size = replace(_SIZE, tokens=tokens, rounds=rounds, threads=threads)
    with err.status("starting far ends") as status, far_hosts(ends, HostSize(threads, memory), folder) as far_ends:
        course = SpreadCourse(path, far_ends, seconds, size, stage=lambda what: status.update(what))
        rows = list(course.run())
    for table in (forwards_table(rows), answers_table(rows)):
        out.print(table)
    for words in verdicts(rows):
        out.print(words, markup=False, soft_wrap=True)
    if report is not None:
        about = {"model": path.name, "ends": ends, "memory": memory, "size": asdict(size)}
        found = {**about, "rows": [row.to_json() for row in rows]}
        report.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if any(row.failed or row.differs for row in rows) else 0)


def _delays(text: str) -> tuple[float, ...]:
    """In seconds. Raises UsageError."""
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 <= one <= LONGEST for one in found):
        raise UsageError(f"--delays {text}: expected milliseconds from 0 to {LONGEST:.0f}, such as {DELAYS}")
    return tuple(one / 1000 for one in found)


def _use_libllama(asked: Path | None) -> str:
    """The folder that both ends load from, in force from now on: as asked, the config's, what was built here.

    Empty where there is none of these: the ends then say what is missing.
    """
    from pilotfish.daemon.rpchost.rpc_building import FOLDER

    config, built = files.load(), cache_dir() / FOLDER
    if asked is None and config.engine.libllama not in LIBLLAMA:
        asked = Path(config.engine.libllama)
    if asked is None and built.is_dir():
        asked = built
    if asked is None:
        return ""
    folder = str(asked.absolute())
    os.environ[LIBRARY_FOLDER] = folder  # not by a config: what is measured begins with none, and would take it back
    return folder


def _weights(model: str, quantization: str | None, like: str | None, root: Path | None) -> Path:
    """What is loaded, made where it has to be."""
    from pilotfish.daemon.lab.real_text.enlarged import enlarged
    from pilotfish.daemon.lab.subjects import model_path, variant

    source = model_path(model, root)
    if like is not None:
        with err.status(f"making a model like {like}") as status:
            return enlarged(source, like, quantization or FORMAT, status.update)
    kind = quantization or (FORMAT if model == MODEL else None)
    return variant(source, kind) if kind else source
