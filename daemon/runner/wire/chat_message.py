"""The assistant's message in OpenAI's form, while it grows and when it is whole."""

from __future__ import annotations

import secrets
import string
from collections.abc import Iterable
from typing import Any

from pilotfish.daemon.chat.answers.answer_events import (
    AnswerEvent,
    AnswerMessage,
    CallArguments,
    CallStart,
    Content,
    Reasoning,
)
from pilotfish.daemon.chat.answers.answer_format import AnswerReading

_LETTERS = string.ascii_letters + string.digits
_ID_LENGTH = 32  # of the ids that llama-server makes


class ChatMessage:
    """Reads one answer. Deltas are what OpenAI's clients put together."""

    def __init__(self, reading: AnswerReading) -> None:
        self._parser, begun = reading.parser()
        self._message = AnswerMessage()
        self._message.add(begun)
        self._opening = [] if reading.continued else self._deltas(begun)
        self._ids: list[str] = []

    @property
    def calls(self) -> int:
        """How many tools are called so far."""
        return len(self._message.calls)

    def opening(self) -> list[dict[str, Any]]:
        """Deltas of what the prompt has begun, unless the client knows it."""
        return self._opening

    def feed(self, text: str) -> list[dict[str, Any]]:
        """Deltas of what is certain after this piece of text."""
        return self._added(self._parser.feed(text))

    def finish(self) -> list[dict[str, Any]]:
        """Deltas of what was held back. Nothing comes after this."""
        return self._added(self._parser.finish())

    def to_json(self) -> dict[str, Any]:
        """The message so far."""
        message: dict[str, Any] = {"role": "assistant", "content": self._message.content}
        if self._message.reasoning.strip():
            message["reasoning_content"] = self._message.reasoning
        if self._message.calls:
            message["tool_calls"] = [
                {
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                    "id": call.id or self._id(index),
                }
                for index, call in enumerate(self._message.calls)
            ]
        return message

    def _added(self, events: list[AnswerEvent]) -> list[dict[str, Any]]:
        self._message.add(events)
        return self._deltas(events)

    def _deltas(self, events: Iterable[AnswerEvent]) -> list[dict[str, Any]]:
        return [self._delta(event) for event in _joined(events)]

    def _delta(self, event: AnswerEvent) -> dict[str, Any]:
        match event:
            case Content(text):
                return {"content": text}
            case Reasoning(text):
                return {"reasoning_content": text}
            case CallStart(index, name, id):
                function = {"name": name, "arguments": ""}
                call = {"index": index, "id": id or self._id(index), "type": "function", "function": function}
                return {"tool_calls": [call]}
            case CallArguments(index, text):
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}

    def _id(self, index: int) -> str:
        while len(self._ids) <= index:
            self._ids.append("".join(secrets.choice(_LETTERS) for _ in range(_ID_LENGTH)))
        return self._ids[index]


def _joined(events: Iterable[AnswerEvent]) -> list[AnswerEvent]:
    """Pieces of one text as one."""
    joined: list[AnswerEvent] = []
    for event in events:
        match joined[-1:], event:
            case [Content(before)], Content(text):
                joined[-1] = Content(before + text)
            case [Reasoning(before)], Reasoning(text):
                joined[-1] = Reasoning(before + text)
            case [CallArguments(index, before)], CallArguments(same, text) if index == same:
                joined[-1] = CallArguments(index, before + text)
            case _:
                joined.append(event)
    return joined
