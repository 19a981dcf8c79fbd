"""gpt-oss writes messages to channels: what it thinks, calls, and says are marked by the header of each.

    <|channel|>analysis<|message|>...<|end|>
    <|start|>assistant<|channel|>commentary to=functions.f<|message|>{...}<|call|>

OpenAI's own reader of this format works on the ids of a vocabulary that it downloads, so it is not used here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pilotfish.daemon.chat.answers.answer_events import CallArguments, CallStart, Content, Reasoning
from pilotfish.daemon.chat.answers.called_tools import Tool
from pilotfish.daemon.chat.answers.grammar_writer import CallRules, CallWish, GrammarWriter, literal, one_of
from pilotfish.daemon.chat.answers.incoming_text import IncomingText, Steps
from pilotfish.daemon.chat.answers.json_extent import pass_json

START, CHANNEL, CONSTRAIN, MESSAGE, END = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"
_ENDS = (END, "<|call|>", "<|return|>", START)
_TURN = f"{START}assistant"
_CALLING = ("commentary", "analysis")  # the channels of calls
MARKERS = (START, CHANNEL, CONSTRAIN, MESSAGE, END)
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"(?:^|\s)to=(?:functions\.)?([^\s<]+)")


@dataclass(frozen=True, slots=True)
class Channels:
    """`thoughts` is false where reasoning stays in the content, markers and all."""

    thoughts: bool = True

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts of which some models have tokens that are not shown otherwise."""
        return MARKERS

    def grammar(self, writer: GrammarWriter, tools: Sequence[Tool], wish: CallWish) -> CallRules:
        """The rules of calls, whose recipient is named before the channel or behind it."""
        type_of = rf"(space {literal(CONSTRAIN)}? [A-Za-z0-9_\x2D]+)? {literal(MESSAGE)}"
        pairs = [(literal(f"=functions.{tool.name}"), writer.arguments(tool, n)) for n, tool in enumerate(tools)]
        channel = f"{literal(CHANNEL)} {one_of(map(literal, _CALLING))}"
        early = one_of(f"{name} {channel} {type_of} {arguments}" for name, arguments in pairs)
        late = writer.rule("late", one_of(f"{name} {type_of} {arguments}" for name, arguments in pairs))
        then = {f"{_TURN} to": writer.rule("early", early)}
        then |= {f"{_TURN}{CHANNEL}{name} to": late for name in _CALLING}
        return CallRules(then, begun=_TURN)

    def read(self, incoming: IncomingText, tools: Mapping[str, Tool]) -> Steps[None]:
        """Read an answer to its end."""
        calls = 0
        while not incoming.ended or incoming.rest:
            start = yield from incoming.find(0, MESSAGE)
            header = incoming.take(start + len(MESSAGE))
            if not header.endswith(MESSAGE):
                incoming.emit_text(Content, "" if CHANNEL in header or START in header else header)
                return
            channel, recipient = _parts(header)
            if recipient in tools:
                incoming.emit(CallStart(calls, recipient))
                yield from _call(incoming, calls)
                calls += 1
            else:
                yield from self._message(incoming, header, channel, recipient)

    def _message(self, incoming: IncomingText, header: str, channel: str, recipient: str) -> Steps[None]:
        if recipient:  # a tool that nobody offered: no call, so a text
            incoming.emit_text(Content, header.removeprefix(_TURN))
            yield from incoming.pass_until(_ENDS, Content)
        elif channel != "analysis":
            yield from incoming.pass_until(_ENDS, Content)
        elif self.thoughts:
            yield from incoming.pass_until(_ENDS, Reasoning)
        else:
            incoming.emit_text(Content, header[header.rfind(CHANNEL) :])
            incoming.emit_text(Content, (yield from incoming.pass_until(_ENDS, Content)))


def _parts(header: str) -> tuple[str, str]:
    """The channel and the recipient."""
    channel, recipient = _CHANNEL.findall(header), _RECIPIENT.search(header)
    return (channel[-1] if channel else ""), (recipient[1] if recipient and recipient[1] != "assistant" else "")


def _call(incoming: IncomingText, index: int) -> Steps[None]:
    incoming.take((yield from incoming.past_space()))
    yield from pass_json(incoming, lambda text: incoming.emit(CallArguments(index, text)))
    end = yield from incoming.find(0, *_ENDS)
    incoming.take(end)
    incoming.take(len((yield from incoming.starts_with(*_ENDS))))
