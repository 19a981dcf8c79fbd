"""`pilotfish lab`: what the project itself is measured with, for whoever works on it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pilotfish.daemon.cli.console import err, out
from pilotfish.daemon.cli.lab_far_ends import command as far_ends
from pilotfish.daemon.config.types import ENGINES, STOCK_ENGINE
from pilotfish.daemon.lab.llama_server import find_llama_server
from pilotfish.daemon.lab.matrix.matrix_case import MatrixRow, MatrixSize, cases
from pilotfish.daemon.lab.matrix.matrix_course import MatrixCourse, read_rows
from pilotfish.daemon.lab.matrix.matrix_document import document, spans
from pilotfish.daemon.lab.tiny_models.catalogue import NOT_MADE, architectures
from pilotfish.daemon.lab.tiny_models.making import FORMATS, tiny_model

_DEFAULT = MatrixSize()


@click.group("lab")
def command() -> None:
    """Tiny models of every architecture, what pilotfish does with each, and models spread over far ends."""


command.add_command(far_ends)


@command.command("list")
def listed() -> None:
    """Which architectures have a tiny model, and which not."""
    for one in architectures():
        out.print(f"{one.name:<24} {one.library}", markup=False, soft_wrap=True)
    for other in NOT_MADE:
        out.print(f"none of {other.name}: {other.reason}", style="dim", markup=False, soft_wrap=True)


@command.command("model")
@click.argument("architecture")
@click.option("--format", "kind", default="Q4_K_M", show_default=True, help="F32, or what libllama quantizes to.")
def model(architecture: str, kind: str) -> None:
    """Make the one of ARCHITECTURE, and say where it is."""
    (one,) = architectures([architecture])
    click.echo(tiny_model(one, kind))


@command.command("matrix")
@click.option("--architecture", "names", multiple=True, help="Only this one; may be repeated.")
@click.option("--format", "kinds", multiple=True, help=f"Only this number format; {', '.join(FORMATS)} else.")
@click.option("--engine", "engines", multiple=True, type=click.Choice(list(ENGINES)), help="What computes: llama else.")
@click.option("--tokens", default=_DEFAULT.tokens, show_default=True, type=click.IntRange(2, 3000), help="Per answer.")
@click.option("--context", "contexts", multiple=True, type=click.IntRange(1, 6000), help="Tokens of text before it.")
@click.option("--llama-server", "server", type=click.Path(path_type=Path), help="Ask this stock server, too.")
@click.option(
    "--jsonl", "log", type=click.Path(path_type=Path), help="Keep every row here; what is in it is not redone."
)
@click.option("--known", is_flag=True, help="Measure nothing: only what --jsonl has.")
@click.option("--doc", type=click.Path(path_type=Path), help="Write the page for people.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of lines.")
def matrix(
    names: tuple[str, ...],
    kinds: tuple[str, ...],
    engines: tuple[str, ...],
    tokens: int,
    contexts: tuple[int, ...],
    server: Path | None,
    log: Path | None,
    known: bool,
    doc: Path | None,
    as_json: bool,
) -> None:
    """Compare ids, plain and speculative, on each of them.

    Every model has a process of its own: one that crashes costs its row. --jsonl keeps what is done. Ends with 1 where
    an answer differed or a model failed.
    """
    chosen = [one.name for one in architectures(names)]
    before = [row for row in read_rows(log) if known or not row.failed] if log else []
    size = MatrixSize(tuple(sorted(contexts)) or _DEFAULT.contexts, tokens)
    wanted = cases(chosen, kinds or FORMATS, engines or (STOCK_ENGINE,))
    if known:
        wanted = [case for case in wanted if any(row.case == case and row.size == size for row in before)]
    course = MatrixCourse(wanted, size, known=before, server=find_llama_server(server) if server else None)
    rows = list(_followed(course, log, quiet=as_json))
    if doc is not None:
        doc.write_text(document(rows), encoding="utf-8")
    if as_json:
        click.echo(json.dumps({"rows": [row.to_json() for row in rows]}))
    sys.exit(1 if any(row.failed or row.differences for row in rows) else 0)


def _followed(course: MatrixCourse, log: Path | None, *, quiet: bool) -> Iterator[MatrixRow]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress, _appending(log) as file:
        bar = progress.add_task("starting", total=len(course.cases))
        course.starting = lambda what: progress.update(bar, description=what)
        for row, new in course.run():
            progress.advance(bar)
            if new and file is not None:
                file.write(json.dumps(row.to_json()) + "\n")
                file.flush()
            if not quiet:
                out.print(_line(row), markup=False, soft_wrap=True)
            yield row


class _appending:
    """The log, opened to be gone on with; None without one."""

    def __init__(self, path: Path | None) -> None:
        self._file: TextIO | None = path.open("a", encoding="utf-8") if path else None

    def __enter__(self) -> TextIO | None:
        return self._file

    def __exit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.close()


def _line(row: MatrixRow) -> str:
    if row.failed:
        return f"{row.case}: failed: {row.failed}"
    ids = sum(one.tokens for one in row.compared)
    kept = ", ".join(f"{one.kept} of {one.shared}" for one in row.kept)
    words = f"{row.case}: widths {spans(row.widths)}; {row.rollback}; kept {kept}"
    return f"{words}; {ids} ids, {row.differences} answers different"
