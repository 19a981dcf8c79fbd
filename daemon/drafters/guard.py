"""What stands between a session and a drafter: whatever the drafter does, the session only sees clean proposals.

Isolation. A drafter that raises, answers late, proposes junk or loses the history costs its proposal, never the
answer, whatever it raises, SystemExit included. Three failures in a row empty its guard for this request, a wrong
acknowledgement empties it at once. Refused proposals are counted for `pilotfish status`.

Catching up. Tokens committed while the drafter was not asked are kept and handed over in one commit before the
next proposal, so that a drafter paused for any number of rounds resumes with exactly the committed history.

`inline_guard` has the guard of drafters that are called directly, `threaded_guard` that of those that may be slow.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pilotfish.daemon.drafters.hidden_feed import HiddenFeed
from pilotfish.daemon.drafters.proposals import Refusals, translated
from pilotfish.daemon.registry.containment import reason
from pilotfish.hooks.declared import hidden_layers_of, vocabulary_of
from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.hidden import GivesHidden
from pilotfish.hooks.history import RunningDigest
from pilotfish.hooks.protocols import Bridge, CountsDrafterIds, Drafter, DraftSession, TargetSession
from pilotfish.hooks.types import Ack, Proposal, TargetPin

log = logging.getLogger("pilotfish.drafters")

MAX_FAILURES = 3  # in a row


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a slow drafter took for a proposal of up to `k` tokens, or for the prompt (`k` None)."""

    k: int | None
    seconds: float


class Guard(Protocol):
    """A drafter in one session, in target ids. Called from one thread; nothing here raises what a drafter raises."""

    name: str
    dropped: str  # why the guard is empty, "" while it is not
    closed: bool
    refusals: Refusals  # counts beyond this session
    elsewhere: bool  # the drafter computes on another machine
    prompt_tokens: int  # what `begin` has the drafter read

    @property
    def awaited(self) -> bool:
        """Whether waiting may bring a proposal where asking at once brought none."""
        ...

    @property
    def begun(self) -> bool:
        """Whether the drafter was given the prompt."""
        ...

    @property
    def busy(self) -> bool:
        """Whether the drafter computes on this machine while the target does."""
        ...

    def open(self, target: TargetPin, prompt: Sequence[int]) -> None:
        """Take the session's prompt, and start the drafter's session on it unless that is for `begin`."""
        ...

    def attach(self, target: TargetSession) -> None:
        """Learn which target session the drafter drafts for, before that one's first forward."""
        ...

    def begin(self) -> None:
        """Give the drafter the prompt, if it has not got it yet."""
        ...

    def propose(self, k: int, patience: float = 0.0, *, from_the_start: bool = False) -> Proposal:
        """At most `k` clean ids that continue the history: those at hand, else what `patience` seconds bring.

        `from_the_start` also waits for a drafter that is still reading the prompt.
        """
        ...

    def take_timings(self) -> list[Timing]:
        """How long the drafter took, since this was last asked."""
        ...

    def committed(self, tokens: Sequence[int], *, now: bool) -> None:
        """The target committed `tokens`. With `now` a drafter that is called directly acknowledges them at once."""
        ...

    def rolled_back(self) -> None:
        """The round was not committed."""
        ...

    def close(self) -> None:
        """Let the drafter go."""
        ...


class BaseGuard:
    """What both kinds of guard share: how a proposal gets clean, and what becomes of failures."""

    def __init__(self, drafter: Drafter, bridge: Bridge, *, n_vocab: int, refusals: Refusals | None = None) -> None:
        """`n_vocab` is the target's."""
        own = vocabulary_of(drafter)
        self.name = drafter.name
        self.dropped = ""
        self.closed = False
        self.refusals = refusals or Refusals()
        self.prompt_tokens = 0
        self._drafter = drafter
        self._bridge = bridge
        self._n_vocab = n_vocab
        self._drafter_n_vocab = n_vocab if own is None else own.pin.n_vocab
        self._drafter_ids = bridge.drafter_ids if isinstance(bridge, CountsDrafterIds) else int
        self._failures = 0
        self._feed: HiddenFeed | None = None

    def attach(self, target: TargetSession) -> None:
        """Have the target keep the activations that the drafter asks for."""
        try:
            layers = hidden_layers_of(self._drafter)
            if layers and not isinstance(target, GivesHidden):
                raise ProtocolViolation("it asks for activations, and the target's session gives none")
            self._feed = HiddenFeed(target, layers) if layers and isinstance(target, GivesHidden) else None
        except BaseException as error:
            self._drop(reason("attach", error))

    def _proposal(self, session: DraftSession, k: int) -> Proposal:
        """What the drafter proposes, in target ids; about `k` of them. Raises what the drafter or the bridge raises."""
        asked = int(self._drafter_ids(k))
        if self._feed is not None:
            self._feed.hand_over(session)
        return translated(session, self._bridge, asked, of=self._drafter_n_vocab, into=self._n_vocab).first(k)

    def _failed(self, what: str, error: BaseException, *, fatal: bool) -> None:
        self._failures += 1
        why = reason(what, error)
        if what == "propose":
            self.refusals.add(why)
        if fatal or self._failures >= MAX_FAILURES:
            self._drop(why)
        else:
            log.warning("drafter %s: %s; this round goes on without it", self.name, why)

    def _drop(self, why: str) -> None:
        if self.dropped:
            return
        self.dropped = why
        log.warning("drafter %s is dropped for this request: %s", self.name, why)


def commit(session: DraftSession, bridge: Bridge, tokens: Sequence[int], expected: RunningDigest) -> None:
    """Hand committed target ids to a drafter whose history is `expected`. Raises ProtocolViolation if it errs."""
    ids = bridge.to_drafter(tokens) if tokens else ()
    if len(ids) > 0:  # else the bridge holds them back
        after = expected.commit(ids)
        compare(session.commit(ids), after)


def compare(ack: object, expected: Ack) -> None:
    """Raise ProtocolViolation unless a drafter acknowledged the history that it ought to have."""
    if type(ack) is not Ack:
        raise ProtocolViolation(f"acknowledged with a {type(ack).__name__}, not an Ack")
    if ack != expected:
        raise ProtocolViolation(f"acknowledged {ack}, but the committed history is {expected}")
