"""A generator that emits what a test tells it to, and a server around it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp.test_utils import TestClient, TestServer

from pilotfish.daemon.chat.chat_template import CHATML, ChatTemplate
from pilotfish.daemon.core.answering import Settled
from pilotfish.daemon.core.generation import GenerationRequest, Outcome, OutputToken, StopType, Timings
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine
from pilotfish.daemon.runner.model_card import ModelCard
from pilotfish.daemon.runner.server import Server
from pilotfish.hooks.types import Parity, SessionReport
from tests.waiting import SECONDS, until

BODY = {"prompt": "2 3 4", "n_predict": 3, "temperature": 0}
DONE = Outcome(StopType.EOS, Timings())
WORDS = [OutputToken(5, "five "), OutputToken(6, "six ", drafted=True), OutputToken(7, "seven", drafted=True)]


class ScriptedGenerator:
    """Emits `batches` one after the other, one a turn; with a `gate`, waits for it before every batch.

    `requests` holds what was asked; `cancelled` those whose client left.
    """

    def __init__(
        self,
        batches: Sequence[Sequence[OutputToken]] = (WORDS,),
        *,
        outcome: Outcome | None = None,
        error: BaseException | None = None,
        error_after: int = 0,
        gate: threading.Semaphore | None = None,
        engine: FakeEngine | None = None,
    ) -> None:
        self.engine = engine or FakeEngine()
        self.requests: list[GenerationRequest] = []
        self.cancelled: list[GenerationRequest] = []
        self.begun = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)
        self.batches = batches
        self.outcome = outcome
        self.error = error
        self.error_after = error_after
        self.gate = gate

    @property
    def slots(self) -> int:
        return self.engine.slots

    def close(self) -> None:
        self.engine.close()

    def begin(
        self,
        request: GenerationRequest,
        emit: Callable[[Sequence[OutputToken]], None],
        cancelled: Callable[[], bool],
    ) -> ScriptedAnswering:
        self.requests.append(request)
        self.begun.release()
        return ScriptedAnswering(self, request, emit, cancelled, request.slot or 0)

    def turn(self, answerings: Sequence[ScriptedAnswering]) -> None:
        for answering in answerings:
            answering.turn()


class ScriptedAnswering(Settled):
    """What a `ScriptedGenerator` does for one request."""

    def __init__(self, generator: ScriptedGenerator, request, emit, cancelled, slot: int) -> None:
        self.slot = slot
        self._generator, self._request, self._emit, self._cancelled = generator, request, emit, cancelled
        self._turns = self._emitted = 0

    def turn(self) -> None:
        generator, turn = self._generator, self._turns
        self._turns += 1
        if generator.error and turn >= min(generator.error_after, len(generator.batches)):
            self._end(generator.error)
            return
        while generator.gate and not generator.gate.acquire(timeout=0.01):
            if self._cancelled():
                break
        if self._cancelled():
            generator.cancelled.append(self._request)
            timings = Timings(prompt_n=len(self._request.prompt), predicted_n=self._emitted)
            self._end(Outcome(StopType.NONE, timings))
            return
        self._emit(generator.batches[turn])
        self._emitted += len(generator.batches[turn])
        if turn + 1 == len(generator.batches) and not generator.error:
            self._end(generator.outcome or finished(self._request, self._emitted))

    def _end(self, result: Outcome | BaseException) -> None:
        self._result = result
        self._generator.ended.release()


def finished(request: GenerationRequest, predicted: int) -> Outcome:
    """An ending in which every token but the first was drafted."""
    timings = Timings(1, len(request.prompt) - 1, 10.0, predicted, 20.0, predicted, predicted - 1)
    report = SessionReport(committed=predicted, drafted=predicted, accepted=predicted - 1, rounds=1, seconds=0.03)
    return Outcome(StopType.LIMIT, timings, parity=Parity.LANE, lane="fake", speculated=True, report=report)


def card(engine: FakeEngine, template: str = CHATML) -> ModelCard:
    """A card for the fake engine."""
    return ModelCard(
        name="fake",
        path="/nowhere/fake.gguf",
        template=ChatTemplate(template, bos="<s>", eos="</s>"),
        n_ctx=engine.n_ctx,
        n_vocab=engine.n_vocab,
        lane=engine.lane,
        slots=engine.slots,
    )


@asynccontextmanager
async def serving(generator: ScriptedGenerator, template: str = CHATML) -> AsyncIterator[TestClient]:
    """A client of a server that has loaded `generator`."""
    server = Server(lambda: (generator, card(generator.engine, template)))
    client = TestClient(TestServer(server.app))
    await client.start_server()
    await server.start()
    try:
        yield client
    finally:
        server.cancel()
        await client.close()
        assert server.join(SECONDS), "the engine's thread did not end"


async def ask(client, path="/completion", **body):
    response = await client.post(path, json=body)
    return response.status, await response.json()


async def events(client, path="/completion", **body):
    response = await client.post(path, json={**body, "stream": True})
    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/event-stream")
    lines = (await response.text()).split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: ") for line in lines)
    return [line if (line := text.removeprefix("data: ")) == "[DONE]" else json.loads(line) for text in lines]


async def until_waiting(client, requests):
    """Wait until that many requests wait behind the one that is answered."""

    async def waiting():
        return f"llamacpp:requests_deferred {requests}.0" in await (await client.get("/metrics")).text()

    await until(waiting, f"there are not {requests} requests waiting")


async def drain(job) -> list[OutputToken]:
    """Everything that a job brings until its end."""
    found = []
    while (batch := await asyncio.wait_for(job.next(), SECONDS)) is not None:
        found += batch
    return found
