"""How `pilotfish top` looks: lines of at most the terminal's width, made for 80 columns."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from pilotfish.daemon.cli.console import harmless
from pilotfish.daemon.cli.top_snapshot import Event, TopSnapshot, WatchedModel

COLOURS = {"active": "green", "parked": "yellow", "plain": "yellow", "off": "red"}
_COLUMNS = (("STATE", 8), ("TOK/S", 8), ("RIGHT", 7), ("SAVED", 12), ("REQUESTS", 10))  # beside the model's name
_NARROWEST = 12  # columns of a name


def screen(now: TopSnapshot, events: Sequence[Event], width: int, height: int | None = None) -> Text:
    """Everything. With a `height` it is watched, and of the events there are as many as fit."""
    parts = (_head(now, watched=height is not None), _models(now, width), _stock(now))
    lines = [line for part in parts for line in part]
    folded = [piece for line in lines for piece in _fold(line, width)]
    newest = sorted(events, key=lambda event: -event.time)
    if height is None:
        shown = [piece for event in newest for piece in _fold(_event(event), width)]
    else:
        shown = [_event(event, width // 3) for event in newest[: max(0, height - len(folded) - 2)]]
        for line in shown:
            line.truncate(width, overflow="ellipsis")
    if shown:
        folded += [Text(), Text("EVENTS", "bold"), *shown]
    return Text("\n").join(folded)


def spoken(seconds: float) -> str:
    """A time as people say it: `0.4 s`, `4 min 2 s`, `3 h 12 min`, `2 d 3 h`."""
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < 9.95:
        return f"{sign}{seconds:.1f} s"
    whole = round(seconds)
    for (size, unit), (smaller, lesser) in itertools.pairwise(_UNITS):
        if whole >= size:
            rest = whole % size // smaller
            return f"{sign}{whole // size} {unit}" + (f" {rest} {lesser}" if rest else "")
    return f"{sign}{whole} s"


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def _head(now: TopSnapshot, *, watched: bool) -> Iterator[Text]:
    leave = ("  q quits" if watched else "", "dim")
    if now.started is None:
        yield Text.assemble(("pilotfish", "bold"), "  ", ("no daemon runs", "yellow"), f" at {now.socket}", leave)
        yield Text("`pilotfish daemon` starts one; `pilotfish serve` and `overlay run` bring theirs", "dim")
        return
    up = spoken(max(0.0, now.at - now.started))
    yield Text.assemble(("pilotfish", "bold"), f"  daemon {now.pid}, up {up}  {_clock(now.at)}", leave)
    drafts = ("drafts on", "green") if now.enabled else ("drafts off: pilotfish on", "red")
    yield Text.assemble(drafts, *(f", {figure}" for figure in _figures(now)))
    if now.config_error:
        yield Text(f"config not in force: {_flat(now.config_error)}", "red")


def _figures(now: TopSnapshot) -> Iterator[str]:
    loaded = len(now.loaded)
    yield f"{loaded} model{'' if loaded == 1 else 's'} loaded"
    rates = [model.rate for model in now.loaded if model.rate is not None]
    if rates:
        yield f"{sum(rates):.1f} tok/s"
    if drafted := sum(model.drafted for model in now.loaded):
        yield f"{sum(model.accepted for model in now.loaded) / drafted:.0%} of drafts right"
    yield f"{spoken(now.saved)} saved"


def _models(now: TopSnapshot, width: int) -> Iterator[Text]:
    if now.started is None:
        return
    yield Text()
    if not now.loaded:
        yield Text("No model is loaded; the next request loads one.", "dim")
        return
    name = max(_NARROWEST, width - sum(size for _, size in _COLUMNS))
    titles = "".join(_cell(title, size, right=title != "STATE") for title, size in _COLUMNS)
    yield Text(_cell("MODEL", name) + titles, "bold", no_wrap=True)
    for model in now.loaded:
        yield _row(model, name)
        for line in (model.reason, *model.trouble):
            if line:
                yield Text(f"  {_flat(line)}", "dim")


def _row(model: WatchedModel, name: int) -> Text:
    figures = (
        f"{model.rate:.1f}" if model.rate is not None else "-",
        f"{model.right:.0%}" if model.right is not None else "-",
        spoken(model.saved),
        f"{model.requests}" + (f"+{model.answering}" if model.answering else ""),
    )
    (_, state), *sizes = _COLUMNS
    return Text.assemble(
        _cell(_flat(model.model), name),
        (_cell(model.state, state), COLOURS.get(model.state, "")),
        *(_cell(figure, size, right=True) for figure, (_, size) in zip(figures, sizes, strict=True)),
        no_wrap=True,
    )


def _stock(now: TopSnapshot) -> Iterator[Text]:
    if now.stock:
        yield Text()
        yield Text("ON THE STOCK SERVER", "bold")
    for one in now.stock:
        yield Text.assemble(_flat(one.model) or "(no model)", (f", since {_clock(one.since, now.at)}", "dim"))
        yield Text(f"  {_flat(one.reason)}", "dim")


def _event(event: Event, longest: int | None = None) -> Text:
    """A line; the model's name has at most `longest` columns of it."""
    name = _flat(event.model) if longest is None else _end_of(_flat(event.model), longest)
    at = _clock(event.time, time.time())
    return Text.assemble((f"{at} ", "dim"), (f"{name} " if name else "", "bold"), _flat(event.text))


def _flat(text: str) -> str:
    return " ".join(harmless(text).split())


def _end_of(text: str, size: int) -> str:
    """`text` in at most `size` columns: of names the end tells more."""
    if cell_len(text) <= size:
        return text
    while cell_len(text) > size - 1:
        text = text[1:]
    return f"…{text}"


def _clock(at: float, now: float | None = None) -> str:
    """The time of day, with the day where that is another one than `now`'s."""
    then = time.localtime(at)
    if now is None or then[:3] == time.localtime(now)[:3]:
        return time.strftime("%H:%M:%S", then)
    return time.strftime("%Y-%m-%d %H:%M", then)


def _cell(text: str, size: int, *, right: bool = False) -> str:
    """`text` in exactly `size` columns of a terminal, one of them empty."""
    text = _end_of(text, size - 1)
    return " " * (size - cell_len(text)) + text if right else set_cell_size(text, size)


def _fold(line: Text, width: int) -> Sequence[Text]:
    """A line in pieces that fit, each as far to the right as the first one."""
    indent = len(line.plain) - len(line.plain.lstrip())
    if cell_len(line.plain) <= width:
        return [line]
    pieces = line[indent:].wrap(Console(width=width), max(1, width - indent))
    for piece in pieces:
        piece.rstrip()
    return [Text.assemble(" " * indent, piece) for piece in pieces]
