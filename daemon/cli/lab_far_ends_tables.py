"""Tables of what `pilotfish lab far-ends` measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from pilotfish.daemon.lab.matrix.matrix_document import spans
from pilotfish.daemon.lab.spread.spread_row import SpreadAnswer, SpreadRow


def forwards_table(rows: Sequence[SpreadRow]) -> Table:
    """What forwards cost, a row for each delay."""
    widths = sorted({block.width for row in rows for block in row.blocks if block.width > 1})
    table = Table(title="Forwards: a step, and blocks in steps", title_justify="left")
    for head in ("one-way delay", "step", *map(str, widths)):
        table.add_column(head, justify="right")
    table.add_column("rows equal to steps")
    table.add_column("lane")
    for row in rows:
        if not row.failed:
            costs = [_number(row.steps(width)) for width in widths]
            equal = ", ".join(map(str, row.equal_widths))
            table.add_row(_delay(row), f"{1000 * row.step:.1f} ms", *costs, equal, _lane(row))
    return table


def answers_table(rows: Sequence[SpreadRow]) -> Table:
    """How fast answers were decoded, a row for each and each delay."""
    table = Table(title="Answers: tokens a second, medians of all rounds", title_justify="left")
    for head in ("one-way delay", "plain", "speculative", "ratio", "drafts right"):
        table.add_column(head, justify="right")
    table.add_column("task")
    table.add_column("ids")
    for row in rows:
        for answer in row.answers:
            rates = (f"{answer.plain_rate:.1f}", f"{answer.speculative_rate:.1f}", f"{answer.ratio:.2f}")
            right = f"{answer.accepted} of {answer.drafted}"
            table.add_row(_delay(row), *rates, right, f"{answer.kind}, {answer.mode}", _ids(answer))
    return table


def verdicts(rows: Sequence[SpreadRow]) -> Iterator[str]:
    """What a person should know besides."""
    for row in rows:
        if row.failed:
            yield f"{_delay(row)}: failed: {row.failed}"
        if row.reason:
            yield f"{_delay(row)}: the check at load: {row.reason}"
    answers = [answer for row in rows for answer in row.answers]
    different = sum(answer.differs for answer in answers)
    if different:
        yield f"ids differ in {different} of {len(answers)} answers"
    elif answers:
        yield f"all ids are equal in {len(answers)} answers"


def _delay(row: SpreadRow) -> str:
    return f"{1000 * row.delay:g} ms"


def _number(steps: float | None) -> str:
    return "" if steps is None else f"{steps:.2f}"


def _lane(row: SpreadRow) -> str:
    beyond = f", up to {row.max_context} tokens" if row.max_context else ""
    return f"{spans(row.widths)}{beyond}; ready in {row.load:.1f} s"


def _ids(answer: SpreadAnswer) -> str:
    if not answer.equal:
        return "differ with drafts"
    if answer.apart is None:
        return "equal"
    return "equal, also by libllama alone" if answer.apart else "libllama alone gives others"
