"""A conversation in a terminal: what is sent with every request, what was said, and how an answer is shown."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pilotfish.daemon.cli.console import err, write_words
from pilotfish.daemon.lab.asking import Client

DRAFTED = "cyan"
THOUGHT = "bright_black"


class AnswerFigures(StrEnum):
    """What follows an answer."""

    QUIET = "quiet"  # nothing
    LINE = "line"  # how many tokens, how fast, how many of the drafts were right
    VERBOSE = "verbose"  # that, and every time and count that the server tells


@dataclass
class TerminalChat:
    """One conversation. `options` are Ollama's; `format` and `think` go along where they are set."""

    model: str
    options: dict[str, Any] = field(default_factory=dict)
    show_drafts: bool = False
    figures: AnswerFigures = AnswerFigures.LINE
    system: str = ""
    format: str = ""
    think: bool | str | None = None
    messages: list[dict[str, str]] = field(default_factory=list)

    def body(self) -> dict[str, Any]:
        """The request for the next answer."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        body: dict[str, Any] = {"model": self.model, "messages": [*system, *self.messages], "options": self.options}
        if self.format:
            body["format"] = self.format
        if self.think is not None:
            body["think"] = self.think
        return body


async def say(client: Client, chat: TerminalChat, text: str) -> None:
    """Send a message and show the answer as it comes.

    What came until then stays in the conversation if it is cancelled; a message without an answer leaves it.
    """
    chat.messages.append({"role": "user", "content": text})
    said: list[str] = []
    last: dict[str, Any] | None = None
    try:
        last = await _show(client, chat, said)
    finally:
        if sys.stdout.isatty() and said:
            write_words("\n")
        if last is not None or any(said):
            chat.messages.append({"role": "assistant", "content": "".join(said)})
        else:
            chat.messages.pop()
    _show_figures(chat, last)


async def _show(client: Client, chat: TerminalChat, said: list[str]) -> dict[str, Any]:
    """The last event of an answer, whose words are appended to `said`."""
    last, thinks = {}, False
    async with contextlib.aclosing(client.stream("/api/chat", chat.body())) as events:
        async for event in events:
            message = event.get("message", {})
            piece = message.get("content", "")
            _show_thought(message.get("thinking", ""), ended=thinks and bool(piece))
            thinks = not piece and (thinks or "thinking" in message)
            said.append(piece)
            drafted = event.get("pilotfish", {}).get("drafted", 0) > 0
            write_words(piece, DRAFTED if drafted and chat.show_drafts else "")
            last = event
    return last


def _show_thought(thought: str, *, ended: bool) -> None:
    """What a model thinks, for whoever watches a terminal; it is no part of the answer."""
    if sys.stdout.isatty():
        write_words(thought, THOUGHT)
        write_words("\n\n" if ended else "")


def _show_figures(chat: TerminalChat, last: dict[str, Any]) -> None:
    if chat.figures is AnswerFigures.VERBOSE:
        for name, value in details(last):
            err.print(f"{name + ':':<22}{value}", style="dim", markup=False)
    if chat.figures is not AnswerFigures.QUIET:
        err.print(summary(last), style="dim", markup=False, soft_wrap=True)


def summary(last: dict[str, Any]) -> str:
    """One line on how an answer was made."""
    count, seconds = last.get("eval_count", 0), last.get("eval_duration", 0) / 1e9
    figures = last.get("pilotfish", {})
    rate = f"{count / seconds:.1f} tok/s" if seconds > 0 else "no rate"
    drafted, accepted = figures.get("draft_n", 0), figures.get("draft_n_accepted", 0)
    drafts = f"{accepted} of {drafted} drafted tokens accepted" if drafted else "nothing drafted"
    parity = f", parity {figures['parity']} ({figures.get('lane', '')})" if figures.get("parity") else ""
    return f"{count} tokens, {rate}, {drafts}{parity}"


def details(last: dict[str, Any]) -> list[tuple[str, str]]:
    """Ollama's names for what an answer took, with their values."""
    found = [("total duration", _time(last, "total_duration")), ("load duration", _time(last, "load_duration"))]
    for what in ("prompt_eval", "eval"):
        name, count = what.replace("_", " "), last.get(f"{what}_count", 0)
        seconds = last.get(f"{what}_duration", 0) / 1e9
        rate = f"{count / seconds:.2f} tokens/s" if seconds > 0 else "-"
        took = _time(last, f"{what}_duration")
        found += [(f"{name} count", f"{count} token(s)"), (f"{name} duration", took), (f"{name} rate", rate)]
    return found


def _time(last: dict[str, Any], name: str) -> str:
    seconds = last.get(name, 0) / 1e9
    return f"{seconds:.3f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
