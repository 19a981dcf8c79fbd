"""Whatever becomes of one request, those beside it keep their ids: on real engines, through the runner's thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish.daemon.config.types import Config, Drafters, Speculation
from pilotfish.daemon.core.context_window import ContextShift
from pilotfish.daemon.core.controller import Eager
from pilotfish.daemon.core.generation import GenerationRequest, StopType
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.registry.registry import Registry
from pilotfish.daemon.runner import job as job_module
from pilotfish.daemon.runner.engine_thread import EngineThread
from pilotfish.daemon.runner.job import Job
from pilotfish.hooks.errors import ContextOverflow, RequestError
from pilotfish.hooks.types import SamplingParams
from tests.daemon.runner.scripted import drain
from tests.engines import LoadEngine
from tests.plugins.verifiers.conftest import LANES
from tests.waiting import SECONDS, until

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

pytestmark = pytest.mark.model

SLOTS, N_CTX, N = 4, 256, 20
FEW = 8  # tokens that a reader may leave lying
LEFT = 60  # tokens of context behind the long prompt
TEXTS = (
    "One, two, three, four, five, six, one, two, three, four,",
    "The capital of France is Paris. The capital of Spain is Madrid. The capital of",
    "Write a list: apple, pear, plum, apple, pear, plum, apple,",
)
LONG = "A story about a dog that could not swim. " * 30
GREEDY = SamplingParams(temperature=0, ignore_eos=True)
SEEDED = SamplingParams(temperature=0.8, seed=7, repeat_penalty=1.1, ignore_eos=True)


Fault = Callable[[EngineThread, "CellEngine", asyncio.Event], Awaitable[None]]
"""(thread, engine, set once the others are answered): what one request does"""
Alone = dict[str, list[list[int]]]
"""By an engine's name: the ids of every request while nothing else is answered"""


class Lent(Generator):
    """One whose engine outlives it."""

    def close(self) -> None:
        self.pool.close()


@pytest.fixture(scope="module")
def engines(load_engine: LoadEngine, quantized) -> Iterator[dict[str, CellEngine]]:
    weights = quantized("Q4_0")
    loaded = {name: load_engine(weights, LANES[name], N_CTX, 64, verifier=name, slots=SLOTS) for name in LANES}
    yield loaded
    for one in loaded.values():
        one.close()


@pytest.fixture
def engine(request: pytest.FixtureRequest, engines: dict[str, CellEngine]) -> CellEngine:
    return engines[request.param]


@pytest.fixture(scope="module")
def alone() -> Alone:
    """Found by the first test of each engine."""
    return {}


@asynccontextmanager
async def answering(engine: CellEngine, pin) -> AsyncIterator[EngineThread]:
    """A thread that drafts whether it pays or not."""
    config = Config(Speculation(max_width=4), Drafters(("suffix",)))
    generator = Lent(engine, pin, Registry.load(config), config, controller=Eager)
    thread = EngineThread(lambda: generator, lambda outcome, prompt: None)
    await thread.start()
    try:
        yield thread
    finally:
        thread.cancel()
        assert await asyncio.to_thread(thread.join, SECONDS)
        assert engine.sessions == []


def requests(engine: CellEngine) -> list[GenerationRequest]:
    """Three that are to be answered as if nothing were the matter."""
    prompts = [tuple(engine.tokenizer.encode(text)) for text in TEXTS]
    return [
        GenerationRequest(prompt, (GREEDY, SEEDED)[i % 2], N, cache_prompt=False) for i, prompt in enumerate(prompts)
    ]


def long_one(engine: CellEngine) -> GenerationRequest:
    """The one that something happens to; it would fill its context."""
    prompt = tuple(engine.tokenizer.encode(LONG))[: engine.n_ctx - LEFT]
    return GenerationRequest(prompt, SEEDED, -1, cache_prompt=False)


async def ids(job: Job) -> list[int]:
    return [token.token for token in await drain(job)]


async def beside(thread: EngineThread, engine: CellEngine, fault: Fault, alone: Alone) -> None:
    """Ask three requests beside a fourth, to which `fault` happens, and compare their ids with those alone."""
    asked = requests(engine)
    name = engine.lane.setting.engine
    if name not in alone:
        alone[name] = [await ids(thread.submit(request)) for request in asked]
    assert all(len(said) == N for said in alone[name])
    for _ in range(2):  # the second time in the slots that the first left behind
        others = asyncio.Event()
        victim = asyncio.create_task(fault(thread, engine, others))
        await asyncio.sleep(0)
        found = await asyncio.gather(*(ids(thread.submit(request)) for request in asked))
        others.set()
        await victim
        assert found == alone[name]


def leaves_after(tokens: int) -> Fault:
    async def leaves(thread: EngineThread, engine: CellEngine, others: asyncio.Event) -> None:
        job = thread.submit(long_one(engine))
        heard = 0
        await until(lambda: job.request in thread.running.values())
        while heard < tokens:
            heard += len(await job.next() or ())
        job.cancel()
        await ids(job)
        assert job.outcome().stop_type is StopType.NONE

    return leaves


async def leaves_without_a_word(thread: EngineThread, engine: CellEngine, others: asyncio.Event) -> None:
    """Nobody reads what it says, so that it gets no turn; it is given up once the others are done."""
    job = thread.submit(long_one(engine))
    await others.wait()
    await until(lambda: not job.may_go_on())
    job.cancel()
    assert len(await ids(job)) >= FEW
    assert job.outcome().stop_type is StopType.NONE


async def asks_too_much(thread: EngineThread, engine: CellEngine, others: asyncio.Event) -> None:
    job = thread.submit(replace(long_one(engine), prompt=(5,) * engine.n_ctx))
    await ids(job)
    with pytest.raises(ContextOverflow):
        job.outcome()


async def fills_its_context(thread: EngineThread, engine: CellEngine, others: asyncio.Event) -> None:
    job = thread.submit(long_one(engine))
    assert len(await ids(job)) == LEFT
    assert job.outcome().truncated


async def forgets_its_beginning(thread: EngineThread, engine: CellEngine, others: asyncio.Event) -> None:
    job = thread.submit(replace(long_one(engine), shift=ContextShift(4), n_predict=LEFT + N))
    assert len(await ids(job)) == LEFT + N
    assert job.outcome().discarded > 0


async def cannot_be_sampled(thread: EngineThread, engine: CellEngine, others: asyncio.Event) -> None:
    job = thread.submit(replace(long_one(engine), sampling=replace(SEEDED, grammar="nonsense ::= (")))
    await ids(job)
    with pytest.raises(RequestError):
        job.outcome()


FAULTS = {
    "leaves while its prompt is read": leaves_after(0),
    "leaves after a token": leaves_after(1),
    "leaves in mid-answer": leaves_after(9),
    "takes nothing and leaves": leaves_without_a_word,
    "has a prompt that is too long": asks_too_much,
    "fills its context": fills_its_context,
    "forgets its beginning": forgets_its_beginning,
    "cannot be sampled": cannot_be_sampled,
}


ON_BOTH = ("leaves in mid-answer", "fills its context")


def on_each_engine() -> Iterator[Any]:
    """All of them where forwards are shared; where requests take turns, some in short."""
    for name in LANES:
        for title, fault in FAULTS.items():
            short = name == "llama" or title in ON_BOTH
            yield pytest.param(name, fault, id=f"{name}-{title}", marks=() if short else pytest.mark.long)


@pytest.mark.parametrize(("engine", "fault"), list(on_each_engine()), indirect=["engine"])
async def test_what_becomes_of_one_changes_no_other_one(engine, alone, pin_of, quantized, monkeypatch, fault):
    monkeypatch.setattr(job_module, "MAX_BACKLOG", FEW)
    async with answering(engine, pin_of(quantized("Q4_0"))) as thread:
        await beside(thread, engine, fault, alone)
