"""The parts of an answer, in the order in which they are found, and the message that they make."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Content:
    """A piece of what is said to the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool is called. `id` is empty unless the model gave one."""

    index: int
    name: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the arguments of call `index`: all of them together are a JSON object, unless the answer broke off."""

    index: int
    text: str


AnswerEvent = Content | Reasoning | CallStart | CallArguments


@dataclass(slots=True)
class ToolCall:
    """A call as far as it is known. `arguments` is JSON text."""

    name: str
    id: str = ""
    arguments: str = ""


@dataclass(slots=True)
class AnswerMessage:
    """What the events so far add up to."""

    content: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)

    def add(self, events: Iterable[AnswerEvent]) -> None:
        """Take events in, which may be of one answer only."""
        for event in events:
            match event:
                case Content(text):
                    self.content += text
                case Reasoning(text):
                    self.reasoning += text
                case CallStart(_, name, id):
                    self.calls.append(ToolCall(name, id))
                case CallArguments(index, text):
                    self.calls[index].arguments += text
