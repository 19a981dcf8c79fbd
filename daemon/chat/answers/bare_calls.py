"""Calls as JSON without a marker before them, as Llama 3 writes them: `{"name": ..., "parameters": {...}}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pilotfish.daemon.chat.answers.answer_events import Content
from pilotfish.daemon.chat.answers.call_object import CallKeys, call_body, read_call
from pilotfish.daemon.chat.answers.called_tools import Tool
from pilotfish.daemon.chat.answers.grammar_writer import CallRules, CallWish, GrammarWriter, one_of
from pilotfish.daemon.chat.answers.incoming_text import IncomingText, Steps

PYTHON_TAG = "<|python_tag|>"  # stands before some calls, and is no part of any text
_KEYS = CallKeys(arguments=("parameters", "arguments"), only_these=True)


@dataclass(frozen=True, slots=True)
class BareCalls:
    """Objects that call a tool by its name; all others are content."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts of which some models have tokens that are not shown otherwise."""
        return (PYTHON_TAG,)

    def grammar(self, writer: GrammarWriter, tools: Sequence[Tool], wish: CallWish) -> CallRules | None:
        """The rules of calls, where there has to be one: what begins with a brace may else be anything."""
        if not wish.required:
            return None
        bodies = [call_body(writer, _KEYS, tool, number) for number, tool in enumerate(tools)]
        more = f'(space "," space "{{" {one_of(bodies)})*' if wish.several else ""
        return CallRules({"{": writer.rule("calls", f"{one_of(bodies)} {more} space")})

    def read(self, incoming: IncomingText, tools: Mapping[str, Tool]) -> Steps[None]:
        """Read an answer to its end."""
        calls = 0
        while marker := (yield from incoming.pass_until(("{", PYTHON_TAG), Content)):
            if marker == PYTHON_TAG:
                continue
            incoming.rest = marker + incoming.rest
            if (yield from read_call(incoming, _KEYS, tools, calls)):
                calls += 1
                yield from _past_separator(incoming)
            else:
                incoming.emit_text(Content, incoming.take(len(marker)))
                if incoming.ended:
                    incoming.rest = incoming.rest.replace(PYTHON_TAG, "")
                incoming.give_up_at_the_end()


def _past_separator(incoming: IncomingText) -> Steps[None]:
    position = yield from incoming.past_space()
    if (yield from incoming.at(position)) in (";", ","):
        after = yield from incoming.past_space(position + 1)
        if (yield from incoming.at(after)) == "{":
            position = after
    incoming.take(position)
