"""llama-server's endpoints on aiohttp, as far as text goes. Before the model is loaded every one answers 503."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from aiohttp import web

from pilotfish.daemon.http.client_program import client_program
from pilotfish.daemon.http.gate import gate
from pilotfish.daemon.http.json_text import kind, parse_object
from pilotfish.daemon.registry.containment import guarded
from pilotfish.daemon.runner.endpoints import unserved_routes
from pilotfish.daemon.runner.engine_thread import Generates
from pilotfish.daemon.runner.far_ends_watch import end_with_far_ends, watch_far_ends
from pilotfish.daemon.runner.handover import Handover
from pilotfish.daemon.runner.metrics import Metrics
from pilotfish.daemon.runner.model_card import ModelCard, models_json, props_json, slots_json
from pilotfish.daemon.runner.model_load import Load, ModelLoad
from pilotfish.daemon.runner.relay import relay
from pilotfish.daemon.runner.responding import ResponseFormat, json_response, respond
from pilotfish.daemon.runner.sidecar import Sidecar
from pilotfish.daemon.runner.wire import completion, openai_answers
from pilotfish.daemon.runner.wire.chat_request import PreparedChat, completion_body, leave_to_stock, prepare_chat
from pilotfish.daemon.runner.wire.completion_request import NO_DEFAULTS, CompletionRequest, read_completion
from pilotfish.daemon.runner.wire.fields import Fields
from pilotfish.daemon.runner.wire.prompt_ids import tokenize
from pilotfish.daemon.runner.wire.request_defaults import RequestDefaults
from pilotfish.hooks.errors import EngineError, PilotfishError, RequestError, UnsupportedRequest
from pilotfish.hooks.protocols import SpansMachines, Tokenizer

log = logging.getLogger("pilotfish.runner")

MAX_BODY = 64 << 20  # bytes
LONG_TEXT = 1 << 14  # bytes of a body from which parsing and tokenizing leave the event loop

_T = TypeVar("_T")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_LOADING = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
_NO_SLOT = {"error": {"message": "no slot available", "type": "unavailable_error", "code": 503}}
_NOT_FOUND = {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}


class Server:
    """One model behind llama-server's protocol. `load` runs on the engine's thread, or has begun already.

    `start` begins to load unless that was done, and `app` may be served at once. To end: `cancel`, clean the app up,
    `join`. With a `sidecar`, which stays the caller's to close, what this server does not do is done by stock.
    """

    def __init__(
        self,
        load: Load | ModelLoad,
        *,
        host: str = "127.0.0.1",
        defaults: RequestDefaults = NO_DEFAULTS,
        sidecar: Sidecar | None = None,
    ) -> None:
        """`host` is where it listens, `defaults` what the launch says for every request."""
        self.metrics = Metrics()
        self.handover = Handover()
        middlewares = [_errors, gate(host), self.handover.watch, self._ready, self._beside]
        self.app = web.Application(middlewares=middlewares, client_max_size=MAX_BODY)
        self._loading = load if isinstance(load, ModelLoad) else ModelLoad(load)
        self._sidecar = sidecar
        self._defaults = defaults
        self._engine = self._loading.engine
        self._engine.finished = self.metrics.count
        self._add_routes()

    def start(self) -> asyncio.Future[None]:
        """Load the model; the future is done when requests are answered, or raises what loading raised."""
        return self._engine.start()

    @property
    def busy(self) -> bool:
        """Whether a request is being answered or waits."""
        relaying = self._sidecar is not None and self._sidecar.active
        return relaying or bool(self._engine.running) or self._engine.waiting > 0

    @property
    def certification(self) -> str:
        """The job that would certify the loaded model; empty when there is nothing to certify."""
        card = self._loading.card
        return card.certification if card else ""

    @property
    def generator(self) -> Generates[Any] | None:
        """What answers, once the model is loaded."""
        return self._engine.generator

    async def lost(self) -> str:
        """Wait until no request can be answered any more, although nobody told this server to end; why."""
        return await self._engine.lost()

    async def far_ends_lost(self, deadline: float) -> None:
        """Watch the machines that the loaded model is spread over; returns at once where there are none. See `lost`."""
        engine: object = self._engine.generator.engine if self._engine.generator else None
        if isinstance(engine, SpansMachines) and engine.far_ends:
            end_with_far_ends(self._engine, engine)
            await watch_far_ends(self._engine, engine, deadline)

    def cancel(self) -> None:
        """End the running answer and refuse those that wait, so that every open connection ends soon."""
        self._engine.cancel()

    def join(self, timeout: float) -> bool:
        """Whether the engine's thread has ended, after at most `timeout` seconds. No handler may run any more."""
        return self._engine.join(timeout)

    @web.middleware
    async def _ready(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if self._engine.generator is None:
            return json_response(_LOADING, 503)
        if self._engine.failure:
            raise EngineError(self._engine.failure)
        return await handler(request)

    @web.middleware
    async def _beside(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """What is not done here goes to the stock server, if there is one."""
        try:
            return await handler(request)
        except UnsupportedRequest as error:
            if self._sidecar is None:
                raise
            log.info("%s goes to the stock llama-server: %s", request.path, error)
        return await relay(request, self._sidecar)

    def _add_routes(self) -> None:
        get: dict[str, _Handler] = {
            "/health": self._health,
            "/props": self._props,
            "/metrics": self._metrics,
            "/models": self._models,
            "/slots": self._slots,
            "/lora-adapters": self._adapters,
            "/pilotfish/explain": self._explain,
        }
        post: dict[str, _Handler] = {
            "/completion": self._completion,
            "/completions": self._completion,
            "/v1/completions": self._openai_completion,
            "/chat/completions": self._chat_completion,
            "/v1/chat/completions": self._chat_completion,
            "/apply-template": self._apply_template,
            "/tokenize": self._tokenize,
            "/detokenize": self._detokenize,
        }
        aliases = {"/v1/health": self._health, "/v1/models": self._models}
        self.app.add_routes(web.get(path, handler) for path, handler in (get | aliases).items())
        self.app.add_routes(web.post(path, handler) for path, handler in post.items())
        self.app.add_routes(unserved_routes())

    @property
    def _model(self) -> ModelCard:
        assert self._loading.card is not None  # set before the generator, without which no handler runs
        return self._loading.card

    @property
    def _tokenizer(self) -> Tokenizer:
        assert self._engine.generator is not None
        return self._engine.generator.engine.tokenizer

    async def _health(self, request: web.Request) -> web.Response:
        return json_response({"status": "ok"})

    async def _props(self, request: web.Request) -> web.Response:
        return json_response(await asyncio.to_thread(props_json, self._model))

    async def _models(self, request: web.Request) -> web.Response:
        return json_response(models_json(self._model))

    async def _slots(self, request: web.Request) -> web.Response:
        running = self._engine.running
        if len(running) >= self._model.slots and request.query.get("fail_on_no_slot"):
            return json_response(_NO_SLOT, 503)
        return json_response(slots_json(self._model, running))

    async def _adapters(self, request: web.Request) -> web.Response:
        return json_response([])  # a launch with adapters is stock's

    async def _metrics(self, request: web.Request) -> web.Response:
        from pilotfish.daemon.runner.metrics_text import CONTENT_TYPE, text_of  # few runners are ever scraped

        self.metrics.processing = len(self._engine.running)
        self.metrics.deferred = self._engine.waiting
        if self._engine.generator is not None:
            self.metrics.look_at(self._engine.generator)
        text = text_of(self.metrics)
        self.metrics.scraped()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    async def _explain(self, request: web.Request) -> web.Response:
        explain = getattr(self._engine.generator, "explain", None)
        if explain is None:
            raise UnsupportedRequest("what answers here decides nothing that could be explained")
        return json_response(explain())

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        parsed = await self._read(request, lambda body: body)
        return await self._respond(request, parsed, completion.Native(parsed, self._model.name))

    async def _openai_completion(self, request: web.Request) -> web.StreamResponse:
        parsed = await self._read(request, openai_answers.checked_text_body)
        return await self._respond(request, parsed, openai_answers.Text(parsed, self._model.name))

    async def _chat_completion(self, request: web.Request) -> web.StreamResponse:
        chat = PreparedChat("")

        def prepare(body: dict[str, Any]) -> dict[str, Any]:
            nonlocal chat
            if self._sidecar is not None:
                leave_to_stock(body, self._model.template)
            chat = prepare_chat(body, self._model.template)
            return completion_body(body, chat)

        parsed = await self._read(request, prepare, blocks=True)
        return await self._respond(request, parsed, openai_answers.Chat(parsed, self._model.name, chat.reading))

    async def _apply_template(self, request: web.Request) -> web.Response:
        def rendered(raw: bytes) -> dict[str, Any]:
            chat = prepare_chat(body := parse_object(raw), self._model.template)
            own = {"pilotfish": chat.to_json()} if Fields(body).boolean("answer_format") else {}
            return {"prompt": chat.prompt, **own}

        return json_response(await _off_loop(await request.read(), rendered, blocks=True))

    async def _tokenize(self, request: web.Request) -> web.Response:
        return json_response({"tokens": await _off_loop(await request.read(), self._tokens)})

    def _tokens(self, raw: bytes) -> list[Any]:
        fields = Fields(parse_object(raw))
        add, parse = fields.boolean("add_special"), fields.boolean("parse_special", True)
        ids = tokenize(fields.raw("content", ""), self._tokenizer, add_special=add, parse_special=parse)
        self._check_ids(ids)
        if not fields.boolean("with_pieces"):
            return ids
        return [{"id": token, "piece": _piece(self._tokenizer.piece(token, special=True))} for token in ids]

    async def _detokenize(self, request: web.Request) -> web.Response:
        def text(raw: bytes) -> str:
            ids = Fields(parse_object(raw)).array("tokens")
            self._check_ids(ids)
            return self._tokenizer.decode(ids).decode("utf-8", "replace")

        return json_response({"content": await _off_loop(await request.read(), text)})

    def _check_ids(self, ids: list[Any]) -> None:
        for token in ids:
            if not isinstance(token, int) or isinstance(token, bool):
                raise RequestError(f"Field 'tokens': expected token ids, got {kind(token)}")
            if not 0 <= token < self._model.n_vocab:
                raise RequestError(f"Field 'tokens': {token} is no token; ids go from 0 to {self._model.n_vocab - 1}")

    async def _read(
        self, request: web.Request, change: Callable[[dict[str, Any]], dict[str, Any]], *, blocks: bool = False
    ) -> CompletionRequest:
        def read(raw: bytes) -> CompletionRequest:
            body = change(parse_object(raw))
            card = self._model
            return read_completion(body, self._tokenizer, card.n_vocab, self._defaults, adds_bos=card.adds_bos)

        return await _off_loop(await request.read(), read, blocks=blocks)

    async def _respond(
        self, http: web.Request, request: CompletionRequest, response_format: ResponseFormat
    ) -> web.StreamResponse:
        client = client_program(http.headers)
        asked = tuple(replace(generation, client=client) for generation in request.generations)
        request = replace(request, generations=asked)
        return await respond(http, request, response_format, self._engine, self._tokenizer, self._model.n_ctx)


async def _off_loop(raw: bytes, work: Callable[[bytes], _T], *, blocks: bool = False) -> _T:
    """`work(raw)`, on a thread when it may take long enough for others to notice, or `blocks`, as templates do."""
    safely = partial(guarded, lambda: work(raw))  # it asks the tokenizer, which is a plugin's
    return await asyncio.to_thread(safely) if blocks or len(raw) >= LONG_TEXT else safely()


def _piece(piece: bytes) -> str | list[int]:
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return list(piece)


@web.middleware
async def _errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Every error as llama-server's error object."""
    try:
        return await handler(request)
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed):
        return json_response(_NOT_FOUND, 404)
    except web.HTTPRequestEntityTooLarge:
        message = f"the body is larger than {MAX_BODY >> 20} MiB; send a shorter one"
        return json_response({"error": {"code": 413, "message": message, "type": "invalid_request_error"}}, 413)
    except web.HTTPException as error:
        wrong = {"code": error.status, "message": error.reason, "type": "invalid_request_error"}
        return json_response({"error": wrong}, error.status)
    except ConnectionError:  # the client is gone
        raise
    except Exception as error:
        if not isinstance(error, PilotfishError):
            log.exception("%s failed", request.path)
        body = completion.error_json(error)
        return json_response({"error": body}, body["code"])
