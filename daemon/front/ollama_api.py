"""`/api/generate` and `/api/chat` in Ollama's shapes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiohttp import web

from pilotfish.daemon.front.answer_pieces import Call, Logprob, Piece, joined
from pilotfish.daemon.front.bodies import read_json
from pilotfish.daemon.front.durations import nanoseconds
from pilotfish.daemon.front.errors import ollama_error
from pilotfish.daemon.front.inference import Done, Event, Events, Finished
from pilotfish.daemon.front.keys import INFERENCE
from pilotfish.daemon.front.requests import AnswerSettings, parse_chat, parse_generate
from pilotfish.daemon.front.streams import Objects, json_response, ndjson, stream_response, timestamp

Said = Callable[[Piece], Mapping[str, Any]]


def generate_said(piece: Piece) -> Mapping[str, Any]:
    """Where `/api/generate` puts what is said and thought."""
    return {"response": piece.text, **_thinking(piece)}


def chat_said(piece: Piece) -> Mapping[str, Any]:
    """Where `/api/chat` puts what is said, thought and called."""
    message: dict[str, Any] = {"role": "assistant", "content": piece.text, **_thinking(piece)}
    if piece.calls:
        message["tool_calls"] = [_call(call) for call in piece.calls]
    return {"message": message}


def _thinking(piece: Piece) -> Mapping[str, str]:
    return {"thinking": piece.thinking} if piece.thinking else {}


def _call(call: Call) -> Mapping[str, Any]:
    return {"id": call.id, "function": {"index": call.index, "name": call.name, "arguments": dict(call.arguments)}}


async def handle_generate(request: web.Request) -> web.StreamResponse:
    """POST /api/generate"""
    wanted = parse_generate(await read_json(request))
    return await respond(request, wanted.settings, request.app[INFERENCE].generate(wanted), generate_said)


async def handle_chat(request: web.Request) -> web.StreamResponse:
    """POST /api/chat"""
    wanted = parse_chat(await read_json(request))
    return await respond(request, wanted.settings, request.app[INFERENCE].chat(wanted), chat_said)


async def respond(request: web.Request, settings: AnswerSettings, events: Events, said: Said) -> web.StreamResponse:
    """A stream of lines, or one object when `stream` is false or there is nothing to generate."""
    async with contextlib.aclosing(events):
        first = await anext(events)
        if isinstance(first, Done):
            return json_response(done_object(settings.model, first, said))
        if settings.stream:
            objects = _objects(settings.model, first, events, said)
            return await stream_response(
                request, objects, "application/x-ndjson", ndjson, lambda _, message: ollama_error(message)
            )
        return json_response(await _collect(settings.model, first, events, said))


async def _objects(model: str, first: Event, events: Events, said: Said) -> Objects:
    yield event_object(model, first, said)
    async for event in events:
        yield event_object(model, event, said)


async def _collect(model: str, first: Event, events: Events, said: Said) -> Mapping[str, Any]:
    pieces: list[Piece] = []
    event: Event = first
    while True:
        piece = event.final if isinstance(event, Finished) else event
        assert isinstance(piece, Piece)  # a Done is always the only event
        pieces.append(piece)
        if isinstance(event, Finished):
            together = joined(pieces)
            return _finished_object(model, event, said(together), together.logprobs)
        event = await anext(events)


def done_object(model: str, done: Done, said: Said) -> dict[str, Any]:
    """The answer to a request that generated nothing."""
    common = {"model": model, "created_at": timestamp(), **said(Piece(""))}
    if done.rendered is not None:
        return {**common, "done": False, "_debug_info": {"rendered_template": done.rendered}}
    return {**common, "done": True, "done_reason": done.reason}


def event_object(model: str, event: Event, said: Said) -> dict[str, Any]:
    """One line of a stream."""
    if isinstance(event, Finished):
        return _finished_object(model, event, said(event.final), event.final.logprobs)
    assert isinstance(event, Piece)  # a Done is always the only event
    value = {"model": model, "created_at": timestamp(), **said(event), "done": False}
    if event.extra:
        value["pilotfish"] = dict(event.extra)
    return {**value, **_logprobs(event.logprobs)}


def _finished_object(
    model: str, event: Finished, text: Mapping[str, Any], logprobs: Sequence[Logprob]
) -> dict[str, Any]:
    final = event.final
    value: dict[str, Any] = {
        "model": model,
        "created_at": timestamp(),
        **text,
        "done": True,
        "done_reason": "stop" if final.done_reason == "tool_calls" else final.done_reason,
    }
    if event.context is not None:
        value["context"] = list(event.context)
    value["total_duration"] = nanoseconds(event.total_duration)
    value["load_duration"] = nanoseconds(event.load_duration)
    for name in ("prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"):
        value[name] = getattr(final, name)
    value["pilotfish"] = {**final.extra, **({"tokens": list(final.tokens)} if event.return_tokens else {})}
    return {**value, **_logprobs(logprobs)}


def _logprobs(logprobs: Sequence[Logprob]) -> dict[str, Any]:
    return {"logprobs": [logprob.to_json() for logprob in logprobs]} if logprobs else {}
