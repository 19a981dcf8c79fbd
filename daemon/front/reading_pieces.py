"""The pieces of an answer, taken apart into what is thought, said and called."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from pilotfish.daemon.chat.answers.answer_events import (
    AnswerEvent,
    AnswerMessage,
    CallArguments,
    CallStart,
    Content,
    Reasoning,
    ToolCall,
)
from pilotfish.daemon.chat.answers.answer_format import AnswerReading
from pilotfish.daemon.front.answer_pieces import Call, Final, Piece


async def read_pieces(pieces: AsyncGenerator[Piece, None], reading: AnswerReading) -> AsyncGenerator[Piece, None]:
    """The same pieces, read; those of which nothing is certain yet travel with the next one."""
    reader = _PieceReader(reading)
    async for piece in pieces:
        if isinstance(piece, Final):
            yield reader.final(piece)
        elif (read := reader.piece(piece)) is not None:
            yield read


@dataclass(slots=True)
class _Told:
    """What a few events say."""

    text: str = ""
    thinking: str = ""
    calls: list[Call] = field(default_factory=list)


class _PieceReader:
    """Reads one answer. A call is told when it is whole."""

    def __init__(self, reading: AnswerReading) -> None:
        self._parser, begun = reading.parser()
        self._calls = AnswerMessage()  # all calls so far
        self._open = False  # whether the last of them may go on
        self._begun = [] if reading.continued else begun
        self._waiting: list[Piece] = []

    def piece(self, piece: Piece) -> Piece | None:
        told = self._told(self._parser.feed(piece.text))
        self._waiting.append(piece)
        if not (told.text or told.thinking or told.calls):
            return None
        return self._joined(told)

    def final(self, final: Final) -> Piece:
        told = self._told([*self._parser.feed(final.text), *self._parser.finish()])
        self._close(told)
        before = self._joined(told)
        reason = "tool_calls" if self._calls.calls and final.done_reason == "stop" else final.done_reason
        logprobs = (*before.logprobs, *final.logprobs)
        return replace(
            final,
            text=told.text,
            thinking=told.thinking,
            calls=tuple(told.calls),
            logprobs=logprobs,
            done_reason=reason,
        )

    def _joined(self, told: _Told) -> Piece:
        """All pieces that waited, as one that tells this."""
        waiting, self._waiting = self._waiting, []
        drafted = sum(int(piece.extra.get("drafted", 0)) for piece in waiting)
        return Piece(
            told.text,
            tuple(logprob for piece in waiting for logprob in piece.logprobs),
            tuple(token for piece in waiting for token in piece.tokens),
            {"drafted": drafted} if drafted else {},
            told.thinking,
            tuple(told.calls),
        )

    def _told(self, events: Iterable[AnswerEvent]) -> _Told:
        told = _Told()
        begun, self._begun = self._begun, []
        for event in (*begun, *events):
            if not isinstance(event, CallArguments):
                self._close(told)
            match event:
                case Content(text):
                    told.text += text
                case Reasoning(text):
                    told.thinking += text
                case CallStart() | CallArguments():
                    self._calls.add([event])
                    self._open = True
        return told

    def _close(self, told: _Told) -> None:
        """Tell the last call, if it was not told yet. One whose arguments broke off is no call, but a text."""
        if not self._open:
            return
        self._open = False
        index, call = len(self._calls.calls) - 1, self._calls.calls[-1]
        arguments = _object(call)
        if arguments is None:
            told.text += f"{call.name}({call.arguments}"
            self._calls.calls.pop()
        else:
            told.calls.append(Call(index, call.id or f"call_{secrets.token_hex(4)}", call.name, arguments))


def _object(call: ToolCall) -> dict[str, Any] | None:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None
