"""`pilotfish conformance`: put a plugin through everything that pilotfish expects of it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.config import files
from pilotfish.daemon.lab.conformance.patience import PATIENCE
from pilotfish.daemon.lab.conformance.plugin import Setup, examine_drafter, examine_file
from pilotfish.daemon.lab.conformance.report import FAILED, PASSED, PluginReport, Verdict

MARKS = {PASSED: "[green]passed[/]", FAILED: "[red]FAILED[/]"}
STILL_WRITING = 2.0  # seconds that a drafter's own threads get to finish what they write


@click.command("conformance")
@click.argument("plugin")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of a table.")
@click.option("--deterministic", is_flag=True, help="Also demand the same proposal for the same history, always.")
@click.option(
    "--patience", type=click.FloatRange(0.01), default=PATIENCE, show_default=True, help="Seconds a call may take."
)
@click.option(
    "--model",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A small .gguf file, which the plugin's verifiers load.",
)
def command(
    plugin: str, name: str | None, as_json: bool, deterministic: bool, patience: float, model: Path | None
) -> None:
    """Check the drafters, bridges and verifiers of PLUGIN, a .py file, or only NAME of it.

    Verifiers need a --model. PLUGIN may also be the name of a drafter that pilotfish has: pilotfish conformance suffix.
    Drafters are built with their tables of the config in force. The exit status is 1 when anything fails.
    """
    settings = files.load_or_last_good()
    with _state_of_its_own(), err.status("loading") as status:
        setup = Setup(settings, model=model, deterministic=deterministic, patience=patience, tell=status.update)
        if name is None and not plugin.endswith(".py") and not Path(plugin).exists():
            report = examine_drafter(plugin, setup)
        else:
            report = examine_file(Path(plugin), setup, name)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        _show(report)
    sys.exit(0 if report.passed else 1)


@contextmanager
def _state_of_its_own() -> Iterator[None]:
    """What a drafter remembers of the checks does not belong to what it remembers for the user."""
    before = os.environ.get("PILOTFISH_STATE")
    threads = set(threading.enumerate())
    with tempfile.TemporaryDirectory(prefix="pilotfish-conformance-", ignore_cleanup_errors=True) as folder:
        os.environ["PILOTFISH_STATE"] = folder
        try:
            yield
        finally:
            del os.environ["PILOTFISH_STATE"]
            if before is not None:
                os.environ["PILOTFISH_STATE"] = before
            _wait_for(set(threading.enumerate()) - threads)


def _wait_for(threads: Iterable[threading.Thread]) -> None:
    """A drafter's threads may still write down what they remember, also into a folder that was just removed."""
    deadline = time.monotonic() + STILL_WRITING
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _show(report: PluginReport) -> None:
    for verdict in report.verdicts:
        out.print(_table(verdict))
        if verdict.slowest:
            slowest = ", ".join(f"{what} {seconds * 1000:.1f} ms" for what, seconds in verdict.slowest.items())
            out.print(f"slowest calls: {slowest}", markup=False, soft_wrap=True)
        if verdict.note:
            out.print(f"note: {verdict.note}", markup=False, soft_wrap=True)
    for problem in report.problems:
        err.print(problem, style="red", markup=False, soft_wrap=True)
    out.print(_summary(report), soft_wrap=True)


def _table(verdict: Verdict) -> Table:
    table = Table(title=f"{verdict.kind} {escape(verdict.name)}", title_justify="left")
    table.add_column("check")
    table.add_column("result")
    table.add_column("what it demands, or what was seen", overflow="fold")
    for result in verdict.results:
        mark = MARKS.get(result.outcome, result.outcome)
        text = escape(result.demand if result.outcome == PASSED else result.seen)
        table.add_row(escape(result.check), mark, text if result.outcome != PASSED else f"[dim]{text}[/]")
    return table


def _summary(report: PluginReport) -> str:
    source = escape(report.source)
    failed = sum(result.outcome == FAILED for verdict in report.verdicts for result in verdict.results)
    if not report.verdicts:
        return f"[red]{source} could not be checked[/]"
    if report.passed:
        names = escape(", ".join(f"{verdict.kind} {verdict.name}" for verdict in report.verdicts))
        return f"[green]{source} conforms[/]: {names}"
    return f"[red]{source} does not conform[/]: {failed} checks failed, {len(report.problems)} problems"
