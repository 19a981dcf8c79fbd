"""`pilotfish receipt`: what a validation run left behind, checked, shown and compared."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from pilotfish.daemon.cli.console import out
from pilotfish.daemon.lab.receipts.receipt_comparison import ReceiptComparison, compare_receipts
from pilotfish.daemon.lab.receipts.receipt_folder import (
    damages_of,
    read_receipt,
    read_trial,
    read_undamaged,
    write_receipt,
)
from pilotfish.daemon.lab.receipts.receipt_json import encoded
from pilotfish.daemon.lab.receipts.receipt_report import REPORT, report
from pilotfish.daemon.lab.receipts.receipt_summary import SUMMARY, summary
from pilotfish.daemon.lab.receipts.redaction import redacted

_FOLDER = click.Path(path_type=Path)


@click.group("receipt")
def command() -> None:
    """Receipts of `pilotfish validate`: folders with every trial's ids, rounds and times, and sums of all of it."""


@command.command("verify")
@click.argument("receipt", type=_FOLDER)
def verify(receipt: Path) -> None:
    """Check every file of RECEIPT against its sum. Exit code 1, and the names, where one is not as it was written."""
    damages = damages_of(receipt)
    for damage in damages:
        out.print(str(damage), style="red", markup=False, soft_wrap=True)
    if damages:
        sys.exit(1)
    found = read_undamaged(receipt)
    out.print(f"{receipt}: as it was written, {len(found.trials)} trials, verdict {found.verdict}", soft_wrap=True)


@command.command("show")
@click.argument("receipt")
@click.option("--json", "as_json", is_flag=True, help="Everything as one JSON object.")
def show(receipt: str, as_json: bool) -> None:
    """Sum RECEIPT up, or show one trial of it: RECEIPT#TRIAL."""
    if "#" in receipt:
        _, trial = read_trial(receipt)
        click.echo(json.dumps(encoded(trial), indent=None if as_json else 1))
        return
    found = read_receipt(Path(receipt))
    click.echo(json.dumps(encoded(found)) if as_json else summary(found), nl=as_json)


@command.command("compare")
@click.argument("first", type=_FOLDER)
@click.argument("second", type=_FOLDER)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def compare(first: Path, second: Path, as_json: bool) -> None:
    """What differs between two runs, their rates side by side, and whether they gave the same ids.

    Exit code 1 where a trial that both have got other ids.
    """
    found = compare_receipts(read_receipt(first), read_receipt(second))
    if as_json:
        click.echo(json.dumps(asdict(found)))
    else:
        _tell(found)
    sys.exit(1 if found.other else 0)


@command.command("redact")
@click.argument("receipt", type=_FOLDER)
@click.argument("output", type=_FOLDER)
def redact(receipt: Path, output: Path) -> None:
    """Write RECEIPT to the folder OUTPUT without prompts, answers, paths and addresses."""
    found = redacted(read_receipt(receipt))
    write_receipt(output, found, {SUMMARY: summary(found), REPORT: report(found)})
    out.print(f"{output}: written", markup=False, soft_wrap=True)


def _tell(found: ReceiptComparison) -> None:
    for name, mine, others in found.differences:
        out.print(f"{name}: {mine} | {others}", markup=False, soft_wrap=True)
    for rate in found.rates:
        numbers = [f"{value:.2f}" if value is not None else "-" for value in (rate.first, rate.second)]
        ratio = f", {rate.ratio:.2f}x" if rate.ratio is not None else ""
        out.print(f"{rate.title}: {' | '.join(numbers)} tokens/s{ratio}", markup=False, soft_wrap=True)
    for name, at in found.other:
        out.print(f"other ids from token {at} on: {name}", style="red", markup=False, soft_wrap=True)
    unknown = f", {found.unknown} cannot be compared: their ids were left out" if found.unknown else ""
    out.print(f"{found.same} trials with equal ids, {len(found.other)} with others{unknown}", soft_wrap=True)
