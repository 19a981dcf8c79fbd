"""From a parsed request to an HTTP answer, streamed or whole; a client that leaves cancels its generation."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any, Protocol

from aiohttp import web

from pilotfish.daemon.core.generation import Outcome
from pilotfish.daemon.runner.engine_thread import EngineThread
from pilotfish.daemon.runner.last_error import say_why
from pilotfish.daemon.runner.wire.completion import dump, error_json, event
from pilotfish.daemon.runner.wire.completion_request import CompletionRequest
from pilotfish.daemon.runner.wire.growing_answer import Answer, AnswerChunk, empty_outcome
from pilotfish.hooks.errors import ContextOverflow, PilotfishError
from pilotfish.hooks.protocols import Tokenizer

log = logging.getLogger("pilotfish.runner")

PING = b":\n\n"  # a comment: keeps clients from giving up on a long prompt


class ResponseFormat(Protocol):
    """How an answer is written: native, OpenAI text or OpenAI chat."""

    done: bytes

    def chunk(self, answer: Answer, chunk: AnswerChunk) -> bytes:
        """The events for one chunk."""
        ...

    def last(self, answer: Answer, outcome: Outcome) -> bytes:
        """The events that end one answer."""
        ...

    def whole(self, answer: Answer, outcome: Outcome) -> dict[str, Any]:
        """One answer as a body."""
        ...

    def together(self, bodies: list[dict[str, Any]]) -> Any:
        """The body for all answers of a request."""
        ...


async def respond(
    http: web.Request,
    request: CompletionRequest,
    response_format: ResponseFormat,
    engine: EngineThread,
    tokenizer: Tokenizer,
    n_ctx: int,
) -> web.StreamResponse:
    """Answer `request`. Errors before the first byte are raised, later ones become an event of the stream."""
    for generation in request.generations:
        if len(generation.prompt) >= n_ctx:
            raise ContextOverflow(len(generation.prompt), n_ctx)
    answers = [Answer(generation, tokenizer, index) for index, generation in enumerate(request.generations)]
    if request.stream:
        return await _stream(_Stream(http), answers, request, response_format, engine)
    bodies = []
    for answer in answers:
        async for batch in _batches(engine, answer):
            answer.add(batch)
        bodies.append(response_format.whole(answer, _outcome(answer)))
    return json_response(response_format.together(bodies))


def json_response(body: Any, status: int = 200) -> web.Response:
    """A JSON body, UTF-8."""
    return web.Response(body=dump(body), status=status, content_type="application/json", charset="utf-8")


async def _stream(
    stream: _Stream,
    answers: list[Answer],
    request: CompletionRequest,
    response_format: ResponseFormat,
    engine: EngineThread,
) -> web.StreamResponse:
    try:
        async with _pinging(stream, request.ping_seconds):
            for answer in answers:
                async for batch in _batches(engine, answer):
                    chunks = answer.add(batch, timings=request.timings_per_token)
                    await stream.write(b"".join([response_format.chunk(answer, chunk) for chunk in chunks]))
                await stream.write(response_format.last(answer, _outcome(answer)))
            await stream.write(response_format.done)
    except ConnectionError:
        log.debug("the client left in mid-stream")
    except Exception as error:
        if not stream.begun:
            raise
        if not isinstance(error, PilotfishError):
            log.exception("a streamed answer failed")
        with contextlib.suppress(ConnectionError):
            await stream.write(event({"error": error_json(error)}))
        say_why(str(error))
        stream.break_off()
    return await stream.end()


@contextlib.asynccontextmanager
async def _pinging(stream: _Stream, seconds: float) -> AsyncIterator[None]:
    """Keep a silent stream alive with a comment every so often; 0 or less means never.

    One task for the whole stream: a time limit on every wait would cost each token more than its JSON does.
    """

    async def ping() -> None:
        with contextlib.suppress(ConnectionError):  # whoever writes the answer finds out as well
            while True:
                written = stream.written
                await asyncio.sleep(seconds)
                if stream.written == written:
                    await stream.write(PING)

    task = asyncio.create_task(ping()) if seconds > 0 else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()


async def _batches(engine: EngineThread, answer: Answer) -> AsyncIterator[list[Any]]:
    """What the engine emits, batch by batch; sets the answer's outcome at the end.

    Leaving early, by whatever exception, cancels the generation.
    """
    if not answer.request.prompt:
        answer.outcome = empty_outcome(answer.request)
        return
    job = engine.submit(answer.request)
    try:
        while (batch := await job.next()) is not None:
            yield batch
        answer.outcome = job.outcome()
    finally:
        job.cancel()


def _outcome(answer: Answer) -> Outcome:
    if answer.outcome is None:
        raise RuntimeError("the answer is not finished")
    return answer.outcome


class _Stream:
    """A response whose headers go out with the first byte, so that an early error can still have a status."""

    def __init__(self, http: web.Request) -> None:
        self.begun = False
        self.written = 0  # writes so far
        self._http = http
        self._response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})

    async def write(self, data: bytes) -> None:
        """Raises ConnectionError when the client is gone."""
        if not data:
            return
        self.written += 1
        if not self.begun:
            self.begun = True
            await self._response.prepare(self._http)
        await self._response.write(data)

    def break_off(self) -> None:
        """Close the connection once what was written is out, as a server that crashes would: Ollama takes no notice of
        an error in a stream, and a stream that ends in order for the end of a shorter answer."""
        if (transport := self._http.transport) is not None:
            transport.close()

    async def end(self) -> web.StreamResponse:
        """The finished response."""
        return self._response
