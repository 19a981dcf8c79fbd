"""The tables of docs/compatibility.md, made of the lists that the runner goes by.

`python -m pilotfish.daemon.lab.compatibility docs/compatibility.md` writes them anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from pilotfish.daemon.runner.endpoints import REFUSED, RELAYED
from pilotfish.daemon.runner.launch_flags import FLAGS, Flag, Handling
from pilotfish.daemon.runner.wire.request_fields import CHAT, COMPLETION, TEXT, RequestField

_END = "<!-- / -->"


def written(document: str) -> str:
    """`document` with every table between its marks, `<!-- name -->` and `<!-- / -->`, as the lists have it now."""
    for name, rows in TABLES.items():
        start, found, rest = document.partition(f"<!-- {name} -->\n")
        if found:
            table = "\n".join(rows())
            document = f"{start}{found}\n{table}\n\n{_END}{rest.partition(_END)[2]}"
    return document


def _flags(handling: Handling) -> Callable[[], Iterator[str]]:
    def rows() -> Iterator[str]:
        yield from ("| flags | why |" if handling is Handling.STOCK else "| flags | what for |", "|---|---|")
        for about, flags in groupby((flag for flag in FLAGS if flag.handling is handling), lambda flag: flag.about):
            yield f"| {', '.join(map(_flag, flags))} | {about} |"

    return rows


def _flag(flag: Flag) -> str:
    usual = f" (but for {' and '.join(f'`{value}`' for value in flag.usual)})" if flag.usual else ""
    return f"`{flag.name}`{usual}"


def _fields(fields: Sequence[RequestField]) -> Callable[[], Iterator[str]]:
    def rows() -> Iterator[str]:
        yield from ("| fields | here | with |", "|---|---|---|")
        for field in fields:
            yield f"| {', '.join(f'`{name}`' for name in field.names)} | {field.handling} | {field.about} |"

    return rows


def _endpoints(listed: Sequence[tuple[str, str, str]]) -> Callable[[], Iterator[str]]:
    def rows() -> Iterator[str]:
        yield from ("| endpoints | what |", "|---|---|")
        for what, same in groupby(sorted(listed, key=lambda row: row[2]), lambda row: row[2]):
            yield f"| {', '.join(f'`{method} {path}`' for method, path, _ in same)} | {what} |"

    return rows


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "served flags": _flags(Handling.SERVED),
    "flags with nothing to do": _flags(Handling.NOTHING),
    "flags that are stock's": _flags(Handling.STOCK),
    "fields of a completion": _fields(COMPLETION),
    "fields of a text completion": _fields(TEXT),
    "fields of a chat": _fields(CHAT),
    "relayed endpoints": _endpoints(RELAYED),
    "refused endpoints": _endpoints(REFUSED),
}


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
