"""Mistral's calls: `[TOOL_CALLS][{...}]`, and in newer models `[TOOL_CALLS]name[CALL_ID]id[ARGS]{...}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pilotfish.daemon.chat.answers.answer_events import CallArguments, CallStart, Content
from pilotfish.daemon.chat.answers.call_object import CallKeys
from pilotfish.daemon.chat.answers.called_tools import Tool
from pilotfish.daemon.chat.answers.grammar_writer import CallRules, CallWish, GrammarWriter, literal, one_of
from pilotfish.daemon.chat.answers.incoming_text import IncomingText, Steps
from pilotfish.daemon.chat.answers.json_extent import pass_json
from pilotfish.daemon.chat.answers.marked_calls import MarkedCalls

TOOL_CALLS, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
LISTED_CALLS = MarkedCalls(TOOL_CALLS, listed=True, keys=CallKeys(id=("id",)))


@dataclass(frozen=True, slots=True)
class NamedCalls:
    """The newer form. With `ids`, the model gives every call an id."""

    ids: bool = False

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts of which some models have tokens that are not shown otherwise."""
        return (TOOL_CALLS, CALL_ID, ARGS) if self.ids else (TOOL_CALLS, ARGS)

    def grammar(self, writer: GrammarWriter, tools: Sequence[Tool], wish: CallWish) -> CallRules:
        """The rules of calls."""
        id = f"({literal(CALL_ID)} [^[]*)? " if self.ids else ""
        bodies = (
            f"{literal(tool.name)} {id}{literal(ARGS)} {writer.arguments(tool, number)}"
            for number, tool in enumerate(tools)
        )
        call = writer.rule("call", one_of(bodies))
        more = f"(space {literal(TOOL_CALLS)} {call})*" if wish.several else ""
        return CallRules({TOOL_CALLS: writer.rule("calls", f"{call} {more}")})

    def read(self, incoming: IncomingText, tools: Mapping[str, Tool]) -> Steps[None]:
        """Read an answer to its end."""
        calls = 0
        while marker := (yield from incoming.pass_until((TOOL_CALLS,), Content)):
            if not (yield from _call(incoming, tools, calls)):
                incoming.emit_text(Content, marker)
                continue
            calls += 1
            incoming.take((yield from incoming.past_space()))


def _call(incoming: IncomingText, tools: Mapping[str, Tool], index: int) -> Steps[bool]:
    name_end = yield from incoming.find(0, CALL_ID, ARGS, "{")
    name, position, id = incoming.rest[:name_end].strip(), name_end, ""
    if name not in tools:
        return False
    if (yield from incoming.starts_with(CALL_ID, position=position)):
        start = position + len(CALL_ID)
        position = yield from incoming.find(start, ARGS, "{")
        id = incoming.rest[start:position].strip()
    position += len((yield from incoming.starts_with(ARGS, position=position)))
    position = yield from incoming.past_space(position)
    if (yield from incoming.at(position)) != "{":
        return False
    incoming.take(position)
    incoming.emit(CallStart(index, name, id))
    yield from pass_json(incoming, lambda text: incoming.emit(CallArguments(index, text)))
    return True
