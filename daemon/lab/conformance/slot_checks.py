"""What an engine with slots must do, and one that remembers: what happens beside a session changes nothing in it.

Rows are compared by what they say of a token: the pick, and the log-probabilities of it and of the likeliest ones,
whose bits are the row's. An engine with one slot, or that remembers nothing, passes what is asked of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace

from pilotfish.daemon.lab.conformance.verifier_checks import (
    GREEDY,
    SEEDED,
    EngineHarness,
    Guess,
    N,
    demand,
    generate,
    go_on,
    perfect,
    ready,
    refused,
    same,
)
from pilotfish.hooks.history import History
from pilotfish.hooks.protocols import (
    HasSlots,
    RemembersConversations,
    Rows,
    SlotSession,
    TargetEngine,
    TargetSession,
    VerifiesTogether,
)
from pilotfish.hooks.types import SamplingParams, TokenLogprob

TOP = 3  # of the likeliest tokens of a row that are compared
PLENTY = 1 << 30  # bytes


def gives_the_slot_asked_for(harness: EngineHarness) -> None:
    """With slots: a session gets the one it asks for, one that is taken is refused, each ends with the context."""
    engine, prompt = harness.engine, harness.prompt
    if not isinstance(engine, HasSlots):
        return
    with ExitStack() as opened:
        for slot in reversed(range(engine.slots)):
            session = opened.enter_context(closing(engine.open(prompt, GREEDY, slot=slot)))
            same(session.slot_id, slot, "the slot given")
        with refused("a session in slot 0, which was taken,"):
            engine.open(prompt, GREEDY, slot=0)
        with refused(f"a session beside {engine.slots} others"):
            engine.open(prompt, GREEDY)
    with refused(f"a prompt of {engine.n_ctx} tokens, the whole context,"):
        engine.open([prompt[0]] * engine.n_ctx, GREEDY, slot=engine.slots - 1)


def keeps_slots_apart(harness: EngineHarness) -> None:
    """With slots: sessions that take turns, drafted rightly, wrongly and not at all, have the rows each has alone."""
    engine = harness.engine
    if not isinstance(engine, HasSlots):
        return
    talks = _talks(harness, engine.slots)
    with _opened(engine, talks) as sessions:
        for turn in range(N):
            for i, (talk, session) in enumerate(zip(talks, sessions, strict=True)):
                if not talk.ended:
                    proposals = talk.proposals(turn + i, harness.max_width)
                    talk.take(session, session.verify(proposals), proposals)
    for i, talk in enumerate(talks):
        talk.compare(f"slot {i} of {engine.slots} in turns")


def verifies_together_as_alone(harness: EngineHarness) -> None:
    """With joint forwards: sessions have the rows each has alone, in each width and number that `together` says."""
    engine = harness.engine
    if not isinstance(engine, VerifiesTogether):
        return
    talks = _talks(harness, engine.slots)
    for width in engine.lane.widths:
        most = engine.together(width)
        demand(1 <= most <= engine.slots, f"together({width}) is {most}; let it be 1 to {engine.slots}, its slots")
        for many in range(2, most + 1):
            _verify_together(engine, [talk.anew() for talk in talks[:many]], width)


def an_end_changes_no_other(harness: EngineHarness) -> None:
    """With slots: what is taken back, refused, or closed in mid-round changes no row of a session beside it."""
    engine = harness.engine
    if not isinstance(engine, HasSlots):
        return
    talks = _talks(harness, engine.slots)
    for stays in range(engine.slots):
        with _opened(engine, talks) as sessions:
            talk, session = talks[stays].anew(), sessions[stays]
            for turn in range(N):
                _disturb(harness, engine, sessions, session, turn)
                talk.take(session, session.verify([]), ())
        talk.compare(f"slot {stays} of {engine.slots} while others ended")


def remembers_and_changes_nothing(harness: EngineHarness) -> None:
    """One that remembers: a conversation goes on the same whether it stayed, was put aside or was given up."""
    engine = harness.engine
    if not isinstance(engine, RemembersConversations):
        return
    other = [harness.other(token) for token in harness.prompt]
    for sampling in harness.samplings:
        said = generate(harness.engine, harness.prompt, sampling, cache_prompt=False)
        turn = [*harness.prompt, *said, *harness.prompt[:3]]
        fresh = generate(harness.engine, turn, sampling, cache_prompt=False)
        for room in (PLENTY, 0):
            for guess, width in ((perfect(()), 1), (perfect(said), harness.max_width)):
                _forget(harness, engine, room)
                _in_first_slot(harness.engine, harness.prompt, sampling, guess, width)
                _in_first_slot(harness.engine, other, sampling)
                found = _in_first_slot(harness.engine, turn, sampling)
                same(found, fresh, f"the next turn of a conversation, with {room} bytes for others,")
            held = engine.remembered.bytes
            demand(0 <= held <= room, f"it holds {held} bytes of conversations; `room` allowed {room}")
    _forget(harness, engine, 0)


SLOT_CHECKS = (
    gives_the_slot_asked_for,
    keeps_slots_apart,
    verifies_together_as_alone,
    an_end_changes_no_other,
    remembers_and_changes_nothing,
)


@dataclass(slots=True)
class _Talk:
    """One session's tokens: the rows that it has alone, and those that it gets beside others."""

    harness: EngineHarness
    prompt: Sequence[int]
    sampling: SamplingParams
    alone: Sequence[TokenLogprob] = ()
    rows: list[TokenLogprob] = field(default_factory=list)

    def anew(self) -> _Talk:
        """The same, before it begins."""
        return replace(self, rows=[])

    @property
    def ended(self) -> bool:
        return len(self.rows) >= len(self.alone)

    def proposals(self, round: int, width: int) -> list[int]:
        """Right, wrong at the second token, wrong from the first on, or none, by turns."""
        right = [row.id for row in self.alone[len(self.rows) :][: width - 1]]
        if round % 4 == 3:
            return []
        wrong = (range(0), range(1, 2), range(width))[round % 4]
        return [self.harness.other(token) if i in wrong else token for i, token in enumerate(right)]

    def take(self, session: TargetSession, rows: Rows, proposals: Sequence[int]) -> None:
        """Draw from `rows` up to the first that differs from its proposal, and commit that."""
        picks: list[int] = []
        for i in range(len(rows)):
            picks.append(rows.pick(i))
            self.rows.append(rows.logprobs(i, picks[i], TOP))
            if i < len(proposals) and picks[i] != proposals[i]:
                break
        session.commit(picks)

    def compare(self, where: str) -> None:
        for at, (row, alone) in enumerate(zip(self.rows, self.alone, strict=False)):
            same(row, alone, f"row {at} of {where}")


def _talks(harness: EngineHarness, many: int) -> list[_Talk]:
    """As many, no two with the same prompt, with the rows that each has alone."""
    talks = []
    for i in range(many):
        at = i % len(harness.prompt)
        talk = _Talk(harness, [*harness.prompt[at:], *harness.prompt[:at]], (GREEDY, SEEDED)[i % 2])
        with ready(harness.engine, talk.prompt, talk.sampling, cache_prompt=False) as session:
            for _ in range(N):
                talk.take(session, session.verify([]), ())
        talk.alone, talk.rows = talk.rows, []
        talks.append(talk)
    return talks


@contextmanager
def _opened(engine: HasSlots, talks: Sequence[_Talk]) -> Iterator[list[SlotSession]]:
    """A session for each, whose prompts are fed block by block in turns. Those left in the list are closed."""
    sessions: list[SlotSession] = []
    try:
        sessions += [engine.open(talk.prompt, talk.sampling, cache_prompt=False) for talk in talks]
        reading = list(sessions)
        while reading:
            reading = [session for session in reading if session.prefill()]
        yield sessions
    finally:
        for session in sessions:
            session.close()


def _verify_together(engine: VerifiesTogether, talks: Sequence[_Talk], width: int) -> None:
    with _opened(engine, talks) as sessions:
        for turn in range(N):
            proposals = [talk.proposals(turn + i, width) for i, talk in enumerate(talks)]
            if any(len(talk.alone) - len(talk.rows) < width for talk in talks):
                break
            found = engine.verify_together(list(zip(sessions, proposals, strict=True)))
            for talk, session, rows, proposed in zip(talks, sessions, found, proposals, strict=True):
                talk.take(session, rows, proposed)
    for i, talk in enumerate(talks):
        talk.compare(f"session {i} of {len(talks)} in a forward of {width} tokens each")


def _disturb(
    harness: EngineHarness, engine: HasSlots, sessions: list[SlotSession], stays: SlotSession, turn: int
) -> None:
    """All sessions but one take back what they verify; from time to time one ends in mid-round, and one is refused."""
    others = [session for session in sessions if session is not stays]
    for session in others:
        session.verify([harness.prompt[0]] * (turn % harness.max_width))
        session.rollback()
    if others and turn % 5 == 4:
        others[0].verify([])
        sessions.remove(others[0])
        others[0].close()
        with refused("a prompt as long as the context"):
            engine.open([harness.prompt[0]] * engine.n_ctx, GREEDY)


def _in_first_slot(
    engine: TargetEngine,
    prompt: Sequence[int],
    sampling: SamplingParams,
    guess: Guess = lambda done, k: (),
    width: int = 1,
) -> list[int]:
    opened = engine.open(prompt, sampling, slot=0) if isinstance(engine, HasSlots) else engine.open(prompt, sampling)
    with closing(opened) as session:
        while session.prefill():
            pass
        return go_on(session, History(prompt), guess, width)


def _forget(harness: EngineHarness, engine: RemembersConversations, room: int) -> None:
    """Begin to remember anew, with nothing in any slot."""
    with ExitStack() as opened:
        for _ in range(harness.engine.slots if isinstance(harness.engine, HasSlots) else 1):
            opened.enter_context(closing(harness.engine.open(harness.prompt, GREEDY, cache_prompt=False)))
    engine.remember(lambda held: room)
