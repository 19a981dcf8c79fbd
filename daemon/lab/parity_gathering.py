"""Several chats with one loaded model at a time, on the way that the runner's requests go: its engine thread and turns.

The thread loads the model and is the only one that drives it, as in a runner. Every chat has two turns. *Freely*, a
chat asks its second question as soon as it has its first answer, in whichever slot is free, so that what a slot or the
memory holds depends on who was faster. *In order*, the chats come four at a time, each to a slot of its own, and the
next four once those are done: what every request finds is then the same however fast the others are, and the same as
if each of them were answered after the other (`MixOrder.ONE_BY_ONE`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import TracebackType
from typing import Any

from pilotfish.daemon.config.types import Config, Drafters, Speculation
from pilotfish.daemon.core.answering import Answering, Emit
from pilotfish.daemon.core.controller import Controller, Eager
from pilotfish.daemon.core.costs import Round
from pilotfish.daemon.core.generation import GenerationRequest, Outcome
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.drafters.drafting import pool_for
from pilotfish.daemon.lab.parity_mixes import SLOTS, Drafting, Mix
from pilotfish.daemon.lab.parity_replays import NAME, Replay, Replays
from pilotfish.daemon.lab.parity_subject import Subject
from pilotfish.daemon.registry.registry import Registry
from pilotfish.daemon.runner.engine_thread import EngineThread
from pilotfish.daemon.runner.job import Job
from pilotfish.hooks.protocols import RemembersConversations
from pilotfish.hooks.types import ConversationTotals, Parity

log = logging.getLogger("pilotfish.lab")

ENDING = 60.0  # seconds until the thread has to have ended
TURNS = 2  # of each chat
TO_THE_END = 1 << 31  # tokens, more than any answer has


class MixOrder(Enum):
    """How a mix is run."""

    FREELY = "freely"
    IN_ORDER = "in order"
    ONE_BY_ONE = "one by one"


@dataclass(frozen=True, slots=True)
class Said:
    """One answer, and in how many of its rounds the forward was shared with others."""

    tokens: tuple[int, ...]
    outcome: Outcome
    shared: int


AllSaid = Mapping[tuple[int, int], Said]
"""(chat, turn) -> what was said"""


@dataclass(frozen=True, slots=True)
class Party:
    """A mix to be run. `ask(chat, turn, said)` is what a chat asks, `replays` what is proposed to which prompt."""

    mix: Mix
    drafting: Drafting
    order: MixOrder
    ask: Callable[[int, int, AllSaid], GenerationRequest]
    replays: Mapping[tuple[int, ...], Replay] = field(default_factory=dict)


class Gathering:
    """A context: the model is loaded at its beginning, and freed at its end. `subject` is there in between."""

    subject: Subject

    def __init__(self, load: Callable[[], Subject]) -> None:
        self._load_subject = load
        self._replays = Replays()
        self._eager = True
        self._loop = asyncio.Runner()
        self._thread = EngineThread(self._load)

    def __enter__(self) -> Gathering:
        try:
            self._loop.run(self._start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def alone(self, request: GenerationRequest) -> Said:
        """Answer it with no other beside it."""
        return self._loop.run(self._alone(request))

    def run(self, party: Party) -> AllSaid:
        """What every chat of the mix says in each turn. Raises what a request raises."""
        self._prepare(party)
        running = self._freely(party) if party.order is MixOrder.FREELY else self._in_order(party)
        return self._loop.run(running)

    def forget(self, room: int) -> None:
        """As if just loaded: nothing in any slot, and from now on at most `room` bytes of conversations."""
        for slot in range(self._generator.slots):
            self.clear(slot)
        engine = self.subject.engine
        if isinstance(engine, RemembersConversations):
            engine.remember(lambda held: room)

    def clear(self, slot: int) -> None:
        """Have a slot give up what it holds."""
        self.alone(GenerationRequest((0,), n_predict=0, cache_prompt=False, slot=slot))

    @property
    def remembered(self) -> ConversationTotals:
        """What became of conversations since `forget`."""
        engine = self.subject.engine
        return engine.remembered if isinstance(engine, RemembersConversations) else ConversationTotals()

    async def _start(self) -> None:
        await self._thread.start()

    def _end(self) -> None:
        self._thread.cancel()
        if not self._thread.join(ENDING):
            log.warning("the engine's thread has not ended after %.0f s", ENDING)
        self._loop.close()

    def _load(self) -> _WatchedGenerator:
        """On the thread."""
        self.subject = subject = self._load_subject()
        config = _config(SLOTS)
        registry = Registry.load(config)
        registry.add(self._replays.source())
        pool = pool_for(subject.engine, subject.pin, subject.verifier, subject.options, config, before=subject.before)
        self._generator = _WatchedGenerator(
            subject.engine, subject.pin, registry, config, controller=self._controller, pool=pool
        )
        return self._generator

    def _controller(self, *given: Any, **limits: Any) -> Controller:
        return (_WatchedEager if self._eager else _Watched)(*given, **limits)

    def _prepare(self, party: Party) -> None:
        self._replays.know(party.replays)
        self._eager = party.drafting is not Drafting.PAYING
        self._generator.reconfigure(_config(party.mix.width))

    async def _freely(self, party: Party) -> AllSaid:
        said: dict[tuple[int, int], Said] = {}
        seats = [_Seat() for _ in party.mix.order]

        async def talk(place: int, chat: int) -> None:
            if place:
                await seats[place - 1].said(party.mix.staggers[place])
            for turn in range(TURNS):
                job = self._thread.submit(_asked(party, place, turn, said))
                said[chat, turn] = await self._answer(job, seats[place])

        await asyncio.gather(*(talk(place, chat) for place, chat in enumerate(party.mix.order)))
        return said

    async def _in_order(self, party: Party) -> AllSaid:
        said: dict[tuple[int, int], Said] = {}
        places = range(len(party.mix.order))
        for turn in range(TURNS):
            for first in places[::SLOTS]:
                answers = await self._at_once(party, turn, places[first : first + SLOTS], said)
                said.update({(party.mix.order[first + i], turn): answer for i, answer in enumerate(answers)})
        return said

    async def _at_once(self, party: Party, turn: int, places: Sequence[int], said: AllSaid) -> list[Said]:
        """Each in its own slot, and in another one than before."""
        running: list[asyncio.Task[Said]] = []
        before: _Seat | None = None
        for place in places:
            if before is not None:
                await before.said(party.mix.staggers[place] if party.order is MixOrder.IN_ORDER else TO_THE_END)
            before = _Seat()
            request = replace(_asked(party, place, turn, said), slot=(place + turn) % SLOTS)
            running.append(asyncio.create_task(self._answer(self._thread.submit(request), before)))
        return await asyncio.gather(*running)

    async def _alone(self, request: GenerationRequest) -> Said:
        return await self._answer(self._thread.submit(request), _Seat())

    async def _answer(self, job: Job, seat: _Seat) -> Said:
        tokens: list[int] = []
        try:
            while (batch := await job.next()) is not None:
                tokens += [token.token for token in batch]
                seat.hears(len(batch))
        finally:
            seat.hears(TO_THE_END)
        return Said(tuple(tokens), job.outcome(), self._generator.shared(job.request))


class _Seat:
    """How far a chat has come, for the one that begins after it."""

    def __init__(self) -> None:
        self._heard = 0
        self._moved = asyncio.Event()

    def hears(self, tokens: int) -> None:
        self._heard += tokens
        self._moved.set()

    async def said(self, tokens: int) -> None:
        """Wait for so many, or for its end."""
        while self._heard < tokens:
            self._moved.clear()
            await self._moved.wait()


class _Watched(Controller):
    """Counts the rounds whose forwards are shared."""

    shared = 0

    def observe_round(self, round: Round) -> None:
        self.shared += round.beside > 0
        super().observe_round(round)


class _WatchedEager(_Watched, Eager):
    """Verifies every proposal, and counts."""


class _WatchedGenerator(Generator):
    """Remembers its requests' controllers."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._controllers: dict[int, Controller] = {}  # by the request's id, of those that are being answered

    def begin(self, request: GenerationRequest, emit: Emit, cancelled: Callable[[], bool]) -> Answering:
        answering = super().begin(request, emit, cancelled)
        self._controllers[id(request)] = answering.controller
        return answering

    def shared(self, request: GenerationRequest) -> int:
        """In how many of its rounds it shared a forward. Asked once."""
        controller = self._controllers.pop(id(request), None)
        return controller.shared if isinstance(controller, _Watched) else 0


def _config(width: int) -> Config:
    speculation = Speculation(parity=Parity.NONE, max_width=width, deadline_ms=60_000)
    return Config(speculation, Drafters((NAME, "suffix")))


def _asked(party: Party, place: int, turn: int, said: AllSaid) -> GenerationRequest:
    request = party.ask(party.mix.order[place], turn, said)
    return replace(request, speculate=party.drafting.drafts(place))
