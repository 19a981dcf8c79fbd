"""`pilotfish parity --ollama`: what clients of an ordinary Ollama and of the overlaid one are told, token by token."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape
from rich.table import Table

from pilotfish.daemon.cli.console import err, out

if TYPE_CHECKING:
    from pilotfish.daemon.lab.parity_ollama import OllamaCourse
    from pilotfish.daemon.lab.workloads import Mode, Workload

OLLAMA_DEPTHS = (0, 0, 2000)


def compare_ollamas(
    model: Path,
    workloads: Sequence[Workload],
    modes: Sequence[Mode],
    *,
    depths: Sequence[int],
    tokens: int,
    engine: str,
    threads: int | None,
    cache_type: str | None,
    overlay: Path | None,
    as_json: bool,
) -> int:
    """Compare, and show a table or one JSON object; 0 when drafts changed nothing. `cache_type` is for both servers."""
    from pilotfish.daemon.lab.floor_servers import installed
    from pilotfish.daemon.lab.parity_ollama import OllamaParity

    caches = {"OLLAMA_FLASH_ATTENTION": "1", "OLLAMA_KV_CACHE_TYPE": cache_type} if cache_type else {}
    with tempfile.TemporaryDirectory(prefix="pf-parity-") as folder, err.status("starting") as shown:
        parity = OllamaParity(
            installed(overlay),
            model,
            workloads,
            modes,
            depths,
            tokens,
            Path(folder),
            engine,
            threads,
            environment=caches,
        )
        courses = asyncio.run(parity.run(lambda what: shown.update(f"asking: {what}")))
    equal = not any(course.failed for course in courses)
    if as_json:
        click.echo(json.dumps({"equal": equal, "courses": [course.to_json() for course in courses]}))
    else:
        _show(courses, equal=equal)
    return 0 if equal else 1


def _show(courses: Sequence[OllamaCourse], *, equal: bool) -> None:
    plain = courses[0]
    out.print(f"lane: {plain.lane}, parity {plain.parity}; compared with its plain answers", markup=False)
    table = Table()
    table.add_column("asked")
    for heading in ("answers", "tokens", "drafted", "accepted", "back", "unequal", "other rows"):
        table.add_column(heading, justify="right")
    for one in courses:
        counts = (len(one.trials), one.tokens, one.drafted, one.accepted, one.restored, len(one.unequal))
        table.add_row(one.title, *map(str, (*counts, one.other_rows)))
    table.caption = "back: conversations brought back; other rows: answers in which a token was more or less probable"
    out.print(table)
    for one in courses:
        for trial in one.unequal:
            about = f"{one.title}, {trial.workload}, {trial.mode}, turn {trial.turn}, prompt of {trial.prompt}"
            out.print(f"[red]differs[/] at token {trial.differs_at}: {escape(about)}", soft_wrap=True)
    out.print("[green]drafts change no row[/]" if equal else "[red]rows differ with drafts[/]")
