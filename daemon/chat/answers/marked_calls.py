"""Calls as JSON between markers: Hermes and Qwen (`<tool_call>`), Granite, Nemotron, Command R and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pilotfish.daemon.chat.answers.answer_events import Content
from pilotfish.daemon.chat.answers.call_object import CallKeys, call_body, read_call
from pilotfish.daemon.chat.answers.called_tools import Tool
from pilotfish.daemon.chat.answers.grammar_writer import (
    CallRules,
    CallWish,
    GrammarWriter,
    literal,
    one_of,
)
from pilotfish.daemon.chat.answers.incoming_text import IncomingText, Steps


@dataclass(frozen=True, slots=True)
class MarkedCalls:
    """`start`, one object or a list of them, `end`. What begins like a call and is none is content."""

    start: str
    end: str = ""
    listed: bool = False
    keys: CallKeys = field(default_factory=CallKeys)

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts of which some models have tokens that are not shown otherwise."""
        return tuple(marker for marker in (self.start, self.end) if marker)

    def read(self, incoming: IncomingText, tools: Mapping[str, Tool]) -> Steps[None]:
        """Read an answer to its end."""
        calls = 0
        while marker := (yield from incoming.pass_until((self.start,), Content)):
            found = yield from self._section(incoming, tools, calls)
            if not found:
                incoming.emit_text(Content, marker)
                incoming.give_up_at_the_end()
            calls += found

    def grammar(self, writer: GrammarWriter, tools: Sequence[Tool], wish: CallWish) -> CallRules:
        """The rules of calls; a list of them where the model writes lists."""
        bodies = one_of(call_body(writer, self.keys, tool, number) for number, tool in enumerate(tools))
        call = writer.rule("call", f'"{{" {bodies}')
        start, more = self.start + wish.space, f'(space "," space {call})*' if wish.several else ""
        if self.listed:
            calls = f'space "[" space {call} {more} space "]" space {literal(self.end)}'
        else:
            section = writer.rule("section", f"space {call} {more} space {literal(self.end)}")
            # Where calls are up to the model, stock lets whitespace follow without end; else a little of it.
            space = rf'[ ] | "\n" [ \t]{{0,20}} | {literal(start)} {section}'
            again = f"space ({literal(start)} {section} space)*" if wish.required else f"({space})*"
            calls = f"{section} {again}"
        return CallRules({start: writer.rule("calls", calls)})

    def _section(self, incoming: IncomingText, tools: Mapping[str, Tool], calls: int) -> Steps[int]:
        """How many calls were read."""
        found = 0
        position = yield from incoming.past_space()
        listed = (yield from incoming.at(position)) == "["
        opens = listed and (yield from self._opens(incoming, position + 1))
        opening = incoming.take(position + 1) if opens else ""
        while (yield from read_call(incoming, self.keys, tools, calls + found)):
            found += 1
            yield from _past(incoming, ",")
        if not found:
            incoming.rest = opening + incoming.rest
        else:
            yield from _past(incoming, "]") if listed else _past(incoming, "")
            yield from _past(incoming, self.end)
        return found

    def _opens(self, incoming: IncomingText, position: int) -> Steps[bool]:
        position = yield from incoming.past_space(position)
        return (yield from incoming.at(position)) == "{"


def _past(incoming: IncomingText, word: str) -> Steps[None]:
    """Read whitespace and, if it follows, `word` and the whitespace behind it."""
    incoming.take((yield from incoming.past_space()))
    if word and (yield from incoming.starts_with(word)):
        incoming.take(len(word))
        incoming.take((yield from incoming.past_space()))
