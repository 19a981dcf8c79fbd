"""What a viewer sees of requests as they run: round by round while somebody looks, and nothing while nobody does.

The engine's thread puts events in, the event loop takes them out. Without a viewer a request costs an entry in a table
and a round the look at one attribute. Events wait in a queue with bounds; of a viewer that is too slow the oldest ones
are lost, and counted.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pilotfish.daemon.core.costs import Round
from pilotfish.daemon.core.generation import Outcome, OutputToken

MOST = 4096  # events that wait to be taken


class Sight(StrEnum):
    """How much somebody looks at."""

    NOTHING = "nothing"
    ROUNDS = "rounds"  # counts and times
    TEXT = "text"  # and what is said


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """One request that is being answered. `began` is Unix time, `client` the program that asked."""

    feed: LiveFeed
    id: int
    client: str
    prompt_tokens: int
    drafters: tuple[str, ...]
    began: float

    def opened(self, *, joined: bool) -> None:
        """Tell that it is there; `joined`: somebody began to look only after its beginning."""
        self._tell(
            "opened",
            client=self.client,
            prompt_tokens=self.prompt_tokens,
            drafters=list(self.drafters),
            began=self.began,
            joined=joined,
        )

    def round(self, round: Round, tokens: Sequence[OutputToken], gain: float) -> None:
        """Tell of a round; `gain` are the seconds saved so far. Raises nothing."""
        told = {
            "position": round.position,
            "width": round.width,
            "drafter": round.drafter,
            "proposed": len(round.proposal),
            "accepted": round.accepted,
            "committed": round.committed,
            "confidence": [_short(value) for value in round.proposal.confidence[: len(round.proposal)]],
            "seconds": round.seconds,
            "saved_seconds": gain if self.drafters else 0.0,
        }
        if self.feed.sight is Sight.TEXT:
            told["pieces"] = _pieces(tokens)
        self._tell("round", **told)

    def ended(self, outcome: Outcome | None, gain: float) -> None:
        """It is over; None: by an error. Raises nothing."""
        if not self.feed.close(self):
            return
        if outcome is None:
            self._tell("ended", stop="error")
            return
        report, timings = outcome.report, outcome.timings
        seconds, saved = timings.predicted_ms / 1000, gain if self.drafters else 0.0
        self._tell(
            "ended",
            stop=str(outcome.stop_type),
            committed=report.committed,
            drafted=report.drafted,
            accepted=report.accepted,
            rounds=report.rounds,
            prompt_seconds=timings.prompt_ms / 1000,
            seconds=seconds,
            saved_seconds=saved,
            rate=_rate(timings.predicted_n, seconds),
            plain_rate=_rate(timings.predicted_n, seconds + saved),
            dropped=dict(report.dropped),
        )

    def _tell(self, kind: str, **told: Any) -> None:
        self.feed.add({"kind": kind, "request": self.id, "at": self.feed.now(), **told})


class LiveFeed:
    """The requests of one loaded model. `watched` is what a round looks at before it tells anything."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.now = now
        self.sight = Sight.NOTHING
        self.watched = False
        self.running: dict[int, LiveRequest] = {}
        self._numbers = itertools.count(1)
        self._events: deque[dict[str, Any]] = deque(maxlen=MOST)
        self._lost = 0
        self._changing = threading.Lock()  # who runs, and whether somebody looks: each request is told of once

    def open(self, client: str, prompt_tokens: int, drafters: Sequence[str]) -> LiveRequest:
        """A request begins."""
        request = LiveRequest(self, next(self._numbers), client, prompt_tokens, tuple(drafters), self.now())
        with self._changing:
            self.running[request.id] = request
            if self.watched:
                request.opened(joined=False)
        return request

    def close(self, request: LiveRequest) -> bool:
        """A request ended; whether somebody is to be told."""
        with self._changing:
            self.running.pop(request.id, None)
            return self.watched

    def watch(self, sight: Sight) -> None:
        """From now on somebody looks at this much; whoever begins to look is told what runs already."""
        with self._changing:
            self.sight = sight
            if sight is Sight.NOTHING:
                self.watched = False
                self._events.clear()
            elif not self.watched:
                for request in self.running.values():
                    request.opened(joined=True)
                self.watched = True  # last: no round is told of before its request

    def add(self, event: dict[str, Any]) -> None:
        """Queue an event; the oldest gives way."""
        if len(self._events) == MOST:
            self._lost += 1
        self._events.append(event)

    def take(self, most: int = MOST) -> list[dict[str, Any]]:
        """What was not taken yet, oldest first, at most so many."""
        taken: list[dict[str, Any]] = []
        if self._lost:
            taken.append({"kind": "lost", "count": self._lost, "at": self.now()})
            self._lost = 0
        while self._events and len(taken) < most:
            taken.append(self._events.popleft())
        return taken


def _pieces(tokens: Sequence[OutputToken]) -> list[dict[str, Any]]:
    """The text of a round, neighbours of one kind together."""
    return [
        {"text": text, "drafted": drafted}
        for drafted, group in itertools.groupby(tokens, key=lambda token: token.drafted)
        if (text := "".join(token.text for token in group))
    ]


def _short(value: float) -> float:
    return int(1000 * value + 0.5) / 1000


def _rate(tokens: int, seconds: float) -> float | None:
    """Tokens a second: the first belongs to the prompt, so n tokens took n - 1 steps."""
    return (tokens - 1) / seconds if tokens > 1 and seconds > 0 else None
