"""The OpenAI side: `/v1/completions`, `/v1/chat/completions` and `/v1/models`, as Ollama answers them."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from pilotfish.daemon.front.answer_pieces import Call, Logprob, Piece, joined
from pilotfish.daemon.front.bodies import read_json
from pilotfish.daemon.front.catalog import ServedModel
from pilotfish.daemon.front.errors import openai_error
from pilotfish.daemon.front.inference import Done, Event, Events, Finished
from pilotfish.daemon.front.keys import CATALOG, INFERENCE
from pilotfish.daemon.front.openai_requests import Stream, parse_chat_completion, parse_completion, parse_stream
from pilotfish.daemon.front.streams import Objects, dumps, event, json_response, stream_response

_DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every object of one answer shares. `chat` tells the two endpoints apart."""

    model: str
    chat: bool
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))

    def wrap(self, choices: Sequence[Mapping[str, Any]], *, chunk: bool) -> dict[str, Any]:
        """An answer, or with `chunk` a part of a streamed one."""
        kind = "chat.completion" if self.chat else "text_completion"
        return {
            "id": self.id,
            "object": f"{kind}.chunk" if chunk and self.chat else kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": "fp_ollama",
            "choices": list(choices),
        }


async def handle_chat_completions(request: web.Request) -> web.StreamResponse:
    """POST /v1/chat/completions"""
    body = await read_json(request)
    wanted = parse_chat_completion(body)
    envelope = Envelope(wanted.settings.model, chat=True, id=f"chatcmpl-{random.randrange(999)}")
    return await _respond(request, parse_stream(body), envelope, request.app[INFERENCE].chat(wanted))


async def handle_completions(request: web.Request) -> web.StreamResponse:
    """POST /v1/completions"""
    body = await read_json(request)
    wanted = parse_completion(body)
    envelope = Envelope(wanted.settings.model, chat=False, id=f"cmpl-{random.randrange(999)}")
    return await _respond(request, parse_stream(body), envelope, request.app[INFERENCE].generate(wanted))


async def handle_models(request: web.Request) -> web.Response:
    """GET /v1/models"""
    models = await request.app[CATALOG].all()
    return json_response({"object": "list", "data": [_model(model, model.short) for model in models]})


async def handle_model(request: web.Request) -> web.Response:
    """GET /v1/models/{model}"""
    name = request.match_info["model"]
    return json_response(_model(await request.app[CATALOG].find(name), name))


def _model(model: ServedModel, name: str) -> dict[str, Any]:
    created = int(model.manifest.modified)
    return {"id": name, "object": "model", "created": created, "owned_by": model.name.namespace}


async def _respond(request: web.Request, how: Stream, envelope: Envelope, events: Events) -> web.StreamResponse:
    async with contextlib.aclosing(events):
        first = await anext(events)
        if how.stream:
            chunks = _chunks(envelope, how, first, events)
            return await stream_response(request, chunks, "text/event-stream", event, openai_error, _DONE)
        return json_response(await _collect(envelope, first, events))


async def _chunks(envelope: Envelope, how: Stream, first: Event, events: Events) -> Objects:
    yield _chunk(envelope, first, opening=True)
    last = first
    async for last in events:
        piece = _piece(last)
        if not isinstance(last, Finished) or piece.text or piece.thinking or piece.calls or piece.logprobs:
            yield _chunk(envelope, last, opening=False)
    yield envelope.wrap([_choice(envelope, {}, "", _finish_reason(last))], chunk=True)
    if how.include_usage:
        yield {**envelope.wrap([], chunk=True), "usage": _usage(last)}


def _chunk(envelope: Envelope, event: Event, *, opening: bool) -> dict[str, Any]:
    piece = _piece(event)
    delta = {"role": "assistant"} if opening else {}
    choice = _choice(envelope, {**delta, "content": piece.text, **_beside_content(piece)}, piece.text, None)
    return envelope.wrap([{**choice, **_logprobs(envelope, piece.logprobs)}], chunk=True)


def _choice(envelope: Envelope, delta: Mapping[str, Any], text: str, reason: str | None) -> dict[str, Any]:
    shown = {"delta": dict(delta)} if envelope.chat else {"text": text}
    return {"index": 0, **shown, "finish_reason": reason}


async def _collect(envelope: Envelope, first: Event, events: Events) -> dict[str, Any]:
    pieces = [_piece(first)]
    last = first
    async for last in events:
        pieces.append(_piece(last))
    piece = joined(pieces)
    message = {"role": "assistant", "content": piece.text, **_beside_content(piece)}
    shown = {"message": message} if envelope.chat else {"text": piece.text}
    choice = {"index": 0, **shown, "finish_reason": _finish_reason(last)}
    answer = envelope.wrap([{**choice, **_logprobs(envelope, piece.logprobs)}], chunk=False)
    return {**answer, "usage": _usage(last), **_own(last)}


def _beside_content(piece: Piece) -> dict[str, Any]:
    """What is thought and called, under Ollama's names for it."""
    beside: dict[str, Any] = {"reasoning": piece.thinking} if piece.thinking else {}
    if piece.calls:
        beside["tool_calls"] = [_call(call) for call in piece.calls]
    return beside


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": dumps(call.arguments)}
    return {"id": call.id, "index": call.index, "type": "function", "function": function}


def _piece(event: Event) -> Piece:
    if isinstance(event, Finished):
        return event.final
    return event if isinstance(event, Piece) else Piece("")


def _finish_reason(event: Event) -> str:
    return event.final.done_reason if isinstance(event, Finished) else "stop"


def _usage(event: Event) -> dict[str, int]:
    if not isinstance(event, Finished):
        return {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    prompt, completion = event.final.prompt_eval_count, event.final.eval_count
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _own(event: Event) -> dict[str, Any]:
    if isinstance(event, Done) and event.rendered is not None:
        return {"_debug_info": {"rendered_template": event.rendered}}
    return {"pilotfish": dict(event.final.extra)} if isinstance(event, Finished) and event.final.extra else {}


def _logprobs(envelope: Envelope, logprobs: Sequence[Logprob]) -> dict[str, Any]:
    if not logprobs:
        return {}
    if envelope.chat:
        return {"logprobs": {"content": [{"bytes": None, "top_logprobs": [], **lp.to_json()} for lp in logprobs]}}
    return {
        "logprobs": {
            "tokens": [logprob.token for logprob in logprobs],
            "token_logprobs": [logprob.logprob for logprob in logprobs],
            "top_logprobs": [dict(logprob.top) for logprob in logprobs],
        }
    }
