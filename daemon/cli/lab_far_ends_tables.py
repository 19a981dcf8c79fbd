"""Tables of what `pilotfish lab far-ends` measured, at most 80 columns wide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from pilotfish.daemon.lab.matrix.matrix_document import spans
from pilotfish.daemon.lab.spread.spread_row import SpreadAnswer, SpreadRow


def forwards_table(rows: Sequence[SpreadRow]) -> Table:
    """What forwards cost, a row for each delay."""
    measured = [row for row in rows if row.blocks]
    widths = sorted({block.width for row in measured for block in row.blocks if block.width > 1})
    heads = ("delay\none way", "a step", *(f"{width}\nwide" for width in widths))
    table = _table("What forwards cost, blocks in steps", heads, "rows that\nare a step's")
    for row in measured:
        costs = [_number(row.steps(width)) for width in widths]
        table.add_row(_delay(row), f"{1000 * row.step:.1f} ms", *costs, _equal_widths(row))
    return table


def answers_table(rows: Sequence[SpreadRow]) -> Table:
    """How fast answers were decoded, a row for each and each delay."""
    heads = ("delay\none way", "plain\ntok/s", "drafts\ntok/s", "ratio", "drafts\naccepted", "ids")
    table = _table("Answers, medians of all rounds", heads, "the answer")
    for row in rows:
        for answer in row.answers:
            rates = (f"{answer.plain_rate:.1f}", f"{answer.speculative_rate:.1f}", f"{answer.ratio:.2f}x")
            right = f"{answer.accepted} of {answer.drafted}"
            table.add_row(_delay(row), *rates, right, _ids(answer), f"{answer.kind}, {answer.mode}")
    return table


def verdicts(rows: Sequence[SpreadRow]) -> Iterator[str]:
    """What a person should know besides."""
    for row in rows:
        if row.failed:
            yield f"{_delay(row)}: failed: {row.failed}"
        else:
            beyond = f" up to {row.max_context} tokens" if row.max_context else ""
            why = f" ({row.reason})" if row.reason else ""
            yield f"{_delay(row)}: ready in {row.load:.1f} s, lane {row.lane}, widths {spans(row.widths)}{beyond}{why}"
    answers = [answer for row in rows for answer in row.answers]
    different = sum(answer.differs for answer in answers)
    if different:
        yield f"ids differ in {different} of {len(answers)} answers"
    elif answers:
        yield f"all ids are equal in {len(answers)} answers; greedy ones are those of libllama alone on the same split"


def _table(title: str, heads: Sequence[str], last: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column(last)
    return table


def _delay(row: SpreadRow) -> str:
    return f"{1000 * row.delay:g} ms"


def _number(steps: float | None) -> str:
    return "" if steps is None else f"{steps:.2f}"


def _equal_widths(row: SpreadRow) -> str:
    equal = row.equal_widths
    return "all" if len(equal) == len(row.blocks) else ", ".join(map(str, equal))


def _ids(answer: SpreadAnswer) -> str:
    if not answer.equal:
        return "differ"
    return "not as alone" if answer.apart is False else "equal"
