"""DeepSeek's calls (R1, V3, V3.1): markers around a name and, in the older models fenced, its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pilotfish.daemon.chat.answers.answer_events import CallArguments, CallStart, Content
from pilotfish.daemon.chat.answers.called_tools import Tool
from pilotfish.daemon.chat.answers.grammar_writer import CallRules, CallWish, GrammarWriter, literal, one_of
from pilotfish.daemon.chat.answers.incoming_text import IncomingText, Steps
from pilotfish.daemon.chat.answers.json_extent import pass_json

CALLS, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEPARATOR, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
FENCE = "```json"
FUNCTION = "function"  # stands before the separator where the name stands behind it


@dataclass(frozen=True, slots=True)
class DeepseekCalls:
    """`fenced`: `function`, separator, name, and the arguments in a code fence; else name, separator, arguments."""

    fenced: bool

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts of which some models have tokens that are not shown otherwise."""
        return (CALLS, CALL, SEPARATOR, CALL_END, CALLS_END)

    def grammar(self, writer: GrammarWriter, tools: Sequence[Tool], wish: CallWish) -> CallRules:
        """The rules of calls."""
        bodies = (self._body(tool, writer.arguments(tool, number)) for number, tool in enumerate(tools))
        call = writer.rule("call", f"{literal(CALL)} {one_of(bodies)} {literal(CALL_END)}")
        more = f"(space {call})*" if wish.several else ""
        return CallRules({CALLS: writer.rule("calls", f"space {call} {more} space {literal(CALLS_END)}")})

    def _body(self, tool: Tool, arguments: str) -> str:
        if not self.fenced:
            return f"{literal(tool.name + SEPARATOR)} space {arguments}"
        head = literal(f"{FUNCTION}{SEPARATOR}{tool.name}\n{FENCE}\n")
        return f"{head} space {arguments} space {literal('```')}"

    def read(self, incoming: IncomingText, tools: Mapping[str, Tool]) -> Steps[None]:
        """Read an answer to its end."""
        calls = 0
        while marker := (yield from incoming.pass_until((CALLS, CALL), Content)):
            start = 0
            if marker == CALLS:
                start = yield from incoming.past_space()
                start += len((yield from incoming.starts_with(CALL, position=start)))
            if not (yield from self._call(incoming, tools, calls, start)):
                incoming.emit_text(Content, marker)
                continue
            calls += 1
            for end in (CALL_END, CALLS_END):
                incoming.take((yield from incoming.past_space()))
                incoming.take(len((yield from incoming.starts_with(end))))
            incoming.take((yield from incoming.past_space()))

    def _call(self, incoming: IncomingText, tools: Mapping[str, Tool], index: int, start: int) -> Steps[bool]:
        head, position = yield from _line(incoming, start, SEPARATOR)
        if self.fenced and head == FUNCTION:
            head, position = yield from _line(incoming, position, "\n")
        if head not in tools:
            return False
        position = yield from incoming.past_space(position)
        fence = yield from incoming.starts_with(FENCE, position=position)
        position = yield from incoming.past_space(position + len(fence))
        if (yield from incoming.at(position)) != "{":
            return False
        incoming.take(position)
        incoming.emit(CallStart(index, head))
        yield from pass_json(incoming, lambda text: incoming.emit(CallArguments(index, text)))
        if fence:
            incoming.take((yield from incoming.past_space()))
            incoming.take(len((yield from incoming.starts_with("```"))))
        return True


def _line(incoming: IncomingText, start: int, end: str) -> Steps[tuple[str, int]]:
    """What stands from `start` up to `end`, and the position behind that; nothing if it does not come."""
    position = yield from incoming.find(start, end)
    found = yield from incoming.starts_with(end, position=position)
    return (incoming.rest[start:position].strip() if found else ""), position + len(found)
