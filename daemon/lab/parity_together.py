"""Chats answered together and alone, and every id compared: what slots, turns and conversations may not change.

With prompts read as the lane reads them, an answer never depends on anything else: each chat is compared with itself
alone and plain, every prompt fed anew, while the mixes run freely. With prompts read fast, answers may depend on what
was asked before, so that each mix is compared with the same requests in the same slots, plain and one after the other.

The memory for conversations has room for some of those that the slots give up, so that some come back and some do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.config.types import STOCK_ENGINE
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.lab.depths import after_text, natural_text
from pilotfish.daemon.lab.parity_course import ROOM, WAYS, Tell, at_hand
from pilotfish.daemon.lab.parity_gathering import TURNS, AllSaid, Gathering, MixOrder, Party, Said
from pilotfish.daemon.lab.parity_mixes import N_MIXES, SLOTS, Drafting, Mix, mixes
from pilotfish.daemon.lab.parity_pins import Compared, Pins, pins_of
from pilotfish.daemon.lab.parity_runs import first_difference
from pilotfish.daemon.lab.parity_subject import Subject
from pilotfish.daemon.lab.subjects import Weights, stock_lane
from pilotfish.daemon.lab.workloads import Mode, Workload
from pilotfish.hooks.protocols import VerifiesTogether
from pilotfish.hooks.types import EngineOptions

FOLLOW_UP = "Now say that again in other words, and add one example."
REMEMBERED = 4  # conversations that memory has room for; a mix of eight gives up four and more
LARGEST = 1.5  # and at least so many of the largest one, which no room would be for otherwise
PLENTY = 1 << 40  # bytes
JOINT_ROWS = 16  # of a forward that the control has shared


@dataclass(frozen=True, slots=True)
class JointTrial:
    """One answer of a mix compared with the one alone. `restored` and `forgotten` count conversations of the whole mix.

    `shared` are rounds whose forward it had with others, `cached` prompt tokens that were not fed, `differs_at` the
    index of the first other id, None if equal.
    """

    model: str
    lane: str
    prompts: str
    mix: int
    drafting: str
    turn: int
    workload: str
    mode: str
    prompt: int
    cached: int
    tokens: int
    drafted: int
    accepted: int
    shared: int
    restored: int
    forgotten: int
    differs_at: int | None
    pins: Pins

    @property
    def equal(self) -> bool:
        return self.differs_at is None

    @property
    def where(self) -> str:
        """The part of a run that it belongs to."""
        return f"{self.model}, prompts {self.prompts}, mix {self.mix}"

    @property
    def label(self) -> str:
        """Which one it is, for a person."""
        asked = f"{self.workload}, {self.mode}, turn {self.turn}"
        return f"{self.where}, drafts {self.drafting}, {asked}, prompt of {self.prompt}, {self.cached} kept"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "equal": self.equal}


@dataclass(slots=True)
class JointCourse:
    """What is compared, to be run once; the fields are those of `ParityCourse`. Chats get depths and modes by turns.

    With `control` the engine shares forwards of any width in stock's setting, in which joint rows are others.
    """

    weights: Sequence[Weights]
    workloads: Sequence[Workload]
    modes: Sequence[Mode]
    depths: Sequence[int]
    texts: Sequence[Workload]
    n_predict: int
    engine: str
    options: EngineOptions
    control: bool = False
    certified: bool = False
    prompts: Sequence[str] = WAYS
    compared: Compared[JointTrial] = field(default_factory=Compared)
    missing: dict[str, str] = field(default_factory=dict)
    mixes: int = N_MIXES  # how many of the eight, from the first on
    draftings: Sequence[Drafting] = tuple(Drafting)

    @property
    def total(self) -> int:
        """How many answers will be compared if nothing is missing."""
        asked = len(self.weights) * len(self.prompts) * self.mixes * len(self.draftings)
        return asked * len(self.workloads) * TURNS

    def run(self, starting: Tell = lambda what: None) -> Iterator[JointTrial]:
        """Every trial once its mix is done. Raises EngineError or ModelNotFound when there are no weights at all."""
        for title, path in at_hand(self.weights, self.missing, starting):
            with Gathering(partial(self._load, title, path)) as gathering:
                comparison = _JointComparison(gathering, self._chats(gathering.subject), self.n_predict, self.compared)
                for prompts in (way for way in WAYS if way in self.prompts):
                    gathering.subject.read_prompts(prompts)
                    for mix in mixes(len(self.workloads))[: self.mixes]:
                        yield from comparison.trials(prompts, mix, self.draftings, starting)

    def _load(self, title: str, path: Path) -> Subject:
        subject = Subject.load(
            path,
            state_dir(),
            title=title,
            verifier=self.engine,
            lane=stock_lane(self.engine) if self.control else None,
            options=replace(self.options, n_ctx=max(self.depths) + ROOM + 3 * self.n_predict, slots=SLOTS),
            certified=self.certified,
        )
        if self.control:
            _share_any_forward(subject)
        return subject

    def _chats(self, subject: Subject) -> list[_Chat]:
        def count(text: str) -> int:
            return len(subject.engine.tokenizer.encode(text))

        texts = {depth: natural_text(self.texts, depth, count) for depth in self.depths}
        depths = [self.depths[i % len(self.depths)] for i in range(len(self.workloads))]
        modes = [self.modes[i % len(self.modes)] for i in range(len(self.workloads))]
        return [
            _Chat(after_text(workload, texts[depth]), mode)
            for workload, depth, mode in zip(self.workloads, depths, modes, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class _Chat:
    """A question, and how its answers are drawn."""

    workload: Workload
    mode: Mode


class _JointComparison:
    """What is asked of one loaded model."""

    def __init__(
        self, gathering: Gathering, chats: Sequence[_Chat], n_predict: int, compared: Compared[JointTrial]
    ) -> None:
        self._gathering, self._subject = gathering, gathering.subject
        self._chats, self._n_predict, self._compared = chats, n_predict, compared
        self._firsts = [self._subject.request(chat.workload, chat.mode, n_predict) for chat in chats]
        self._room = self._measured_room()
        self._alone: AllSaid | None = None  # what every mix is compared with where the lane reads the prompts

    def trials(self, prompts: str, mix: Mix, draftings: Sequence[Drafting], starting: Tell) -> Iterator[JointTrial]:
        """A mix with every way of drafting. What is compared already is not asked again."""
        where = f"{self._subject.title}, prompts {prompts}, mix {mix.number}"
        expected: AllSaid | None = None
        for drafting in draftings:
            if known := self._known(prompts, mix, drafting):
                yield from known
                continue
            if expected is None:
                starting(f"{where}, plain and one by one")
                expected = self._one_by_one(mix) if prompts == "fast" else self._each_alone()
            starting(f"{where}, drafts {drafting}")
            yield from self._together(prompts, mix, drafting, expected)

    def _known(self, prompts: str, mix: Mix, drafting: Drafting) -> list[JointTrial]:
        """The trials of a mix that was compared as a whole."""
        pins = [self._pins(prompts, mix, drafting, chat, turn) for chat, turn in self._order(mix)]
        found = [self._compared.get(each) for each in pins]
        known = [trial for trial in found if trial is not None]
        return known if len(known) == len(found) else []

    def _order(self, mix: Mix) -> list[tuple[int, int]]:
        """(chat, turn), as trials come."""
        return [(chat, turn) for chat in mix.order for turn in range(TURNS)]

    def _each_alone(self) -> AllSaid:
        if self._alone is None:
            said: dict[tuple[int, int], Said] = {}
            for chat in range(len(self._chats)):
                for turn in range(TURNS):
                    request = replace(self._ask(chat, turn, said), speculate=False, cache_prompt=False)
                    said[chat, turn] = self._gathering.alone(request)
            self._alone = said
        return self._alone

    def _one_by_one(self, mix: Mix) -> AllSaid:
        self._gathering.forget(self._room)
        return self._gathering.run(Party(mix, Drafting.OFF, MixOrder.ONE_BY_ONE, self._ask))

    def _together(self, prompts: str, mix: Mix, drafting: Drafting, alone: AllSaid) -> Iterator[JointTrial]:
        def ask(chat: int, turn: int, said: AllSaid) -> GenerationRequest:
            return requests[chat, turn]

        requests = {(chat, turn): self._ask(chat, turn, alone) for chat, turn in alone}
        replays = {
            requests[chat, turn].prompt: mix.replay(place, alone[chat, turn].tokens)
            for place, chat in enumerate(mix.order)
            for turn in range(TURNS)
        }
        self._gathering.forget(self._room)
        order = MixOrder.FREELY if prompts == "lane" else MixOrder.IN_ORDER
        said = self._gathering.run(Party(mix, drafting, order, ask, replays))
        for chat, turn in self._order(mix):
            yield self._trial(prompts, mix, drafting, chat, turn, said[chat, turn], alone[chat, turn])

    def _ask(self, chat: int, turn: int, said: AllSaid) -> GenerationRequest:
        """What a chat asks in its turn, after what was `said` in the one before."""
        if turn == 0:
            return self._firsts[chat]
        asked = self._chats[chat]
        before = said[chat, turn - 1].tokens
        return self._subject.next_request(asked.workload, asked.mode, self._n_predict, before, FOLLOW_UP)

    def _trial(
        self, prompts: str, mix: Mix, drafting: Drafting, chat: int, turn: int, answer: Said, alone: Said
    ) -> JointTrial:
        timings, conversations = answer.outcome.timings, self._gathering.remembered
        return JointTrial(
            model=self._subject.title,
            lane=self._subject.engine.lane.name,
            prompts=prompts,
            mix=mix.number,
            drafting=drafting,
            turn=turn + 1,
            workload=self._chats[chat].workload.name,
            mode=self._chats[chat].mode.name,
            prompt=timings.cache_n + timings.prompt_n,
            cached=timings.cache_n,
            tokens=len(answer.tokens),
            drafted=timings.draft_n,
            accepted=timings.draft_n_accepted,
            shared=answer.shared,
            restored=conversations.hits,
            forgotten=conversations.forgotten + conversations.refused,
            differs_at=first_difference(alone.tokens, answer.tokens),
            pins=self._pins(prompts, mix, drafting, chat, turn),
        )

    def _pins(self, prompts: str, mix: Mix, drafting: Drafting, chat: int, turn: int) -> Pins:
        asked = [[request.prompt, asdict(request.sampling)] for request in self._firsts]
        place = {"prompts": prompts, "mix": asdict(mix), "drafting": drafting, "chat": chat, "turn": turn}
        return pins_of(self._subject, chats=asked, tokens=self._n_predict, follow_up=FOLLOW_UP, **place)

    def _measured_room(self) -> int:
        """Bytes for some of the conversations that a mix gives up; plenty where nothing is remembered."""
        first, lengths = self._firsts[0], [len(request.prompt) + self._n_predict for request in self._firsts]
        self._gathering.forget(PLENTY)
        self._gathering.alone(replace(first, n_predict=1, speculate=False, slot=0))
        self._gathering.clear(0)
        per_token = self._gathering.remembered.bytes / len(first.prompt)
        mean, most = sum(lengths) / len(lengths), max(lengths)
        return int(per_token * max(REMEMBERED * mean, LARGEST * most)) or PLENTY


def _share_any_forward(subject: Subject) -> None:
    """Have the engine share forwards whatever its check found. Only libllama's slots can be in one forward at all."""
    engine = subject.engine
    if isinstance(engine, VerifiesTogether) and subject.verifier.name == STOCK_ENGINE:
        slots = engine.slots
        setattr(engine, "together", lambda width: max(1, min(slots, JOINT_ROWS // width)))  # noqa: B010 - of this one engine
