"""`pilotfish diagnose`: where two forwards part that should agree, down to the operation."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pilotfish.daemon.cli.console import err
from pilotfish.daemon.cli.diagnosis_view import show

if TYPE_CHECKING:
    from pilotfish.daemon.certify.reproductions import Reproduction
    from pilotfish.daemon.certify.task import Progress
    from pilotfish.daemon.lab.diagnose.diagnosis import Diagnosis

BUDGET = 600.0  # seconds


@click.command("diagnose")
@click.argument("trial", metavar="[RECEIPT#TRIAL]", required=False)
@click.option("--prefix-file", type=click.Path(path_type=Path), help="A reproduction instead of a trial.")
@click.option("--model", help="Instead of the model that the trial or the file names.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
@click.option("--threads", type=click.IntRange(1, 256), help="Threads of the engine; those of the trial by default.")
@click.option("--budget", default=BUDGET, show_default=True, type=click.FloatRange(1), help="Seconds it may take.")
@click.option("--output", type=click.Path(path_type=Path), help="Write the shortest reproduction that was found here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of text.")
def command(
    trial: str | None,
    prefix_file: Path | None,
    model: str | None,
    root: Path | None,
    threads: int | None,
    budget: float,
    output: Path | None,
    as_json: bool,
) -> None:
    """Find out why a trial of a receipt gave other ids, or where the two forwards of a --prefix-file part.

    The history is written anew in three ways, every width up to 17 tokens is tried after each, and the first operation
    whose output differs is named. What --output writes is a file for --prefix-file, and for pilotfish certify --probe.
    The exit status is 1 when anything differs, and 3 when time ran out before anything was found to: that says nothing.
    """
    from pilotfish.daemon.certify.reproductions import write_reproduction

    if (trial is None) == (prefix_file is None):
        raise click.UsageError("name a trial, RECEIPT#TRIAL, or a file with --prefix-file")
    asked = _asked(trial, prefix_file)
    asked = replace(asked, model=model or asked.model, threads=threads or asked.threads)
    with _progress() as progress:
        found = _diagnosis(asked, root, budget, progress)
    if output is not None and found.minimal is not None:
        write_reproduction(output, found.minimal)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=2))
    else:
        show(found, output)
    sys.exit(_status(found))


def _status(found: Diagnosis) -> int:
    """2 is for how a command is used."""
    if found.differs:
        return 1
    return 0 if found.complete else 3


def _asked(trial: str | None, prefix_file: Path | None) -> Reproduction:
    from pilotfish.daemon.certify.reproductions import read_reproduction
    from pilotfish.daemon.lab.diagnose.failing_trial import reproduction_of
    from pilotfish.daemon.lab.receipts.receipt_folder import read_trial

    if prefix_file is not None:
        return read_reproduction(prefix_file)
    return reproduction_of(*read_trial(trial or ""))


def _diagnosis(asked: Reproduction, root: Path | None, budget: float, progress: Progress) -> Diagnosis:
    from pilotfish.daemon.config.paths import state_dir
    from pilotfish.daemon.lab.diagnose.loaded import diagnosing_of
    from pilotfish.daemon.lab.subjects import any_model_path
    from pilotfish.manifests.pins import pin_file

    pin = pin_file(any_model_path(asked.model, root), state_dir())
    return diagnosing_of(asked, pin, budget, progress, state_dir()).run()


@contextmanager
def _progress() -> Iterator[Progress]:
    with err.status("reading") as status:
        yield lambda what: status.update(what)
