"""The matrix as a page for people: docs/models.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pilotfish.daemon.lab.matrix.matrix_case import KeptPrefix, MatrixRow, MatrixSize
from pilotfish.daemon.lab.tiny_models.architecture import WINDOW, Architecture
from pilotfish.daemon.lab.tiny_models.catalogue import ARCHITECTURES, KINDS, NOT_MADE
from pilotfish.daemon.lab.tiny_models.making import FORMATS

_HEAD = """# Models

Which families of models pilotfish speculates with, and what was compared. `pilotfish models` says it of the models that
you have; this page says it of every architecture that the bundled libllama loads and Ollama's library carries. It is
written by a command, not by hand:

```sh
pilotfish kernels-build                                           # once: for models with experts, and Gemma 4
pilotfish lab matrix --doc docs/models.md --jsonl matrix.jsonl    # goes on where it ended; ten minutes for all of it
```

Each line is a tiny model with random weights and the real vocabulary of SmolLM2 or Gemma: as many layers as one of each
kind needs, all dimensions multiples of 256, so that every number format is really used. So the page is about code
paths, not about quality or speed: a big model of the same family runs the same code on more numbers, and its own lane
is found when it is loaded.

- **Widths**: how many tokens a forward may have, so that its rows are bit for bit those of single steps. 1 alone means
  plain decoding; under Ollama such a model is left to stock.
- **Rejected tokens**: how the memory gets rid of them. It cuts them; or it goes back to a snapshot of its running state
  that libllama kept; or the state before the block is written back and the right tokens are computed again, which has a
  price, so that fewer drafts are worth it.
- **Prefix kept**: of a second prompt whose first {shared} ids are those of the one before, how many were not read
  again. Its answer is then compared with the one after reading all of it.
- **Ids**: of answers with drafts, by the product's own drafter and by one that is wrong every third time (or every
  second one, in a narrow lane), each beside plain decoding: {tokens} ids after {contexts} tokens of text, greedy and
  seeded.{window}
- **Different**: answers that were not the plain one. 0 is the promise.
"""

_COLUMNS = ("architecture", "weights", "widths", "rejected tokens", "prefix kept", "ids", "different", "lane")


def document(rows: Sequence[MatrixRow]) -> str:
    """Markdown. The rows should be of one size."""
    return "\n".join([*_head(rows), *_summary(rows), *_tables(rows), *_not_made()]) + "\n"


def _head(rows: Sequence[MatrixRow]) -> Iterator[str]:
    size = rows[0].size if rows else MatrixSize()
    shared = sorted({one.shared for row in rows for one in row.kept})
    window = f" Windows are {WINDOW} tokens long." if any(a.window for a in ARCHITECTURES) else ""
    yield _HEAD.format(shared=_and(shared) or "some", tokens=size.tokens, contexts=_and(size.contexts), window=window)


def _summary(rows: Sequence[MatrixRow]) -> Iterator[str]:
    speculating = [row for row in rows if len(row.widths) > 1]
    ids = sum(one.tokens for row in rows for one in row.compared)
    differences = sum(row.differences for row in rows)
    failed = [row for row in rows if row.failed]
    yield (
        f"{len(rows)} models, of which {len(speculating)} speculate and {len(failed)} failed; {ids} ids compared, "
        f"{differences} answers different.\n"
    )
    yield from _missing(rows)


def _missing(rows: Sequence[MatrixRow]) -> Iterator[str]:
    """What the page is silent about."""
    measured = {(row.case.architecture, row.case.format) for row in rows}
    for kind in FORMATS:
        names = [one.name for one in ARCHITECTURES if (one.name, kind) not in measured]
        if names:
            yield f"Not measured in {kind}: {', '.join(names)}.\n"


def _tables(rows: Sequence[MatrixRow]) -> Iterator[str]:
    for kind, members in KINDS.items():
        notes = {one.name: one for one in members}
        mine = [row for row in rows if row.case.architecture in notes]
        if mine:
            yield f"## {kind}\n"
            yield from _table(mine, notes)
            yield from _reasons(mine)


def _table(rows: Sequence[MatrixRow], notes: Mapping[str, Architecture]) -> Iterator[str]:
    """A line for each model; what is the same as in the line above is not said again."""
    columns = [*_COLUMNS, *(["stock llama-server"] if any(row.stock for row in rows) else [])]
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    before = ""
    for row in rows:
        about = notes[row.case.architecture]
        name = f"**{about.name}**: {'; '.join(filter(None, (about.library, about.note)))}"
        cells = ["" if name == before else name, f"{row.case.format}, {row.case.engine}", *_cells(row), row.stock]
        before = name
        yield "| " + " | ".join(cells[: len(columns)]) + " |"
    yield ""


def _reasons(rows: Sequence[MatrixRow]) -> Iterator[str]:
    """Why lanes are no wider, each reason with the models that it is about."""
    for reason in dict.fromkeys(row.reason for row in rows if row.reason):
        about: dict[str, list[str]] = {}
        for row in rows:
            if row.reason == reason:
                about.setdefault(row.case.architecture, []).append(row.case.format)
        yield f"- {reason}: " + "; ".join(f"{name} {', '.join(kinds)}" for name, kinds in about.items())
    yield ""


def _cells(row: MatrixRow) -> list[str]:
    if row.failed:
        return [f"**failed**: {_one_line(row.failed)}", "", "", "", "", ""]
    return [
        spans(row.widths),
        row.rollback,
        ", ".join(map(_kept, row.kept)),
        str(sum(one.tokens for one in row.compared)),
        f"**{row.differences}**" if row.differences else "0",
        row.lane,
    ]


def _kept(kept: KeptPrefix) -> str:
    return f"{kept.kept} of {kept.shared}" + (" (**another answer**)" if kept.equal is False else "")


def _not_made() -> Iterator[str]:
    yield "## Without a tiny model\n"
    for one in NOT_MADE:
        yield f"- `{one.name}` ({one.library}): {one.reason}."


def spans(widths: Sequence[int]) -> str:
    """`1 to 8, 12, 16`."""
    parts: list[list[int]] = []
    for width in widths:
        if parts and width == parts[-1][-1] + 1:
            parts[-1].append(width)
        else:
            parts.append([width])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts)


def _and(numbers: Sequence[int]) -> str:
    return " and ".join(filter(None, [", ".join(map(str, numbers[:-1])), *map(str, numbers[-1:])]))


def _one_line(text: str, longest: int = 240) -> str:
    text = " ".join(text.replace("|", "/").split())
    return text if len(text) <= longest else text[: longest - 1] + "…"
