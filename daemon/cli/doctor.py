"""`pilotfish doctor`: what is wrong, what may go wrong, and what to do about it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.config import files
from pilotfish.daemon.config.types import Config
from pilotfish.hooks.errors import ConfigError
from pilotfish.manifests.store import Store

if TYPE_CHECKING:
    from pilotfish.daemon.lab.doctor.finding import Finding

_COLOURS = {"problem": "red", "warning": "yellow", "note": "dim"}


@click.command("doctor")
@click.argument("model", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
def command(model: str | None, as_json: bool, root: Path | None) -> None:
    """Look at Ollama, the models, the engines and the config, and say what is wrong or may surprise.

    Nothing is loaded, generated or started. With MODEL, only that one is looked at among the models. The exit code is 1
    if there is a problem.
    """
    from pilotfish.daemon.lab.doctor.examination import examine
    from pilotfish.daemon.lab.doctor.surroundings import look

    with err.status("Looking at Ollama, the engines and the models"):
        findings = examine(asyncio.run(look(Store.find(root), _config(), model)))
    if as_json:
        click.echo(json.dumps({"findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        _show(findings)
    sys.exit(1 if any(finding.level == "problem" for finding in findings) else 0)


def _config() -> Config:
    try:
        return files.load_or_last_good()
    except ConfigError:  # the overview says what is wrong with it
        return Config()


def _show(findings: Sequence[Finding]) -> None:
    for finding in findings:
        out.print(f"[{_COLOURS[finding.level]}]{finding.level}[/]  ", end="")
        out.print(f"{finding.about}: {finding.what}", markup=False, soft_wrap=True)
        if finding.why:
            out.print(f"         {finding.why}", markup=False, soft_wrap=True)
        if finding.remedy:
            out.print(f"         do: {finding.remedy}", markup=False, soft_wrap=True)
    counts = {level: sum(finding.level == level for finding in findings) for level in _COLOURS}
    said = ", ".join(f"{n} {level}{'s' if n != 1 else ''}" for level, n in counts.items() if n)
    out.print(said or "nothing to say: all is well", style="bold")
