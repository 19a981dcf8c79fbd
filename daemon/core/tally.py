"""What one session did so far: tokens and rounds counted, and when the first and the last token came."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pilotfish.daemon.core.costs import Round
from pilotfish.daemon.core.generation import Timings
from pilotfish.daemon.core.measures import Meter
from pilotfish.daemon.drafters.guard import Guard
from pilotfish.hooks.types import SessionReport


class Tally:
    """Counts are tokens, times are seconds of `clock`. `predicted` is ahead of the rest while a round is picked.

    `meter` hears of each round, too.
    """

    def __init__(self, clock: Callable[[], float], meter: Meter) -> None:
        self._meter = meter
        self.predicted = 0
        self._drafted = self._accepted = self._rounds = 0
        self._clock = clock
        self._started = self._first_token = self._last_token = clock()

    @property
    def drafted(self) -> int:
        """Proposed tokens that were verified."""
        return self._drafted

    def milliseconds(self) -> float:
        """Since the first token was committed; 0 before."""
        return 1000 * (self._clock() - self._first_token) if self._rounds else 0.0

    def count(self, round: Round, ended: float) -> None:
        """A round was committed, at `ended`."""
        self._rounds += 1
        self._drafted += len(round.proposal)
        self._accepted += round.accepted
        self._last_token = ended
        self._meter.round(round)
        if self._rounds == 1:
            self._first_token = ended
            self._meter.first_token(ended - self._started)

    def timings(self, prompt_tokens: int, cached: int) -> Timings:
        """As llama-server reports them; `cached` of the prompt's tokens came from an earlier request."""
        first = self._first_token if self._rounds else self._clock()
        return Timings(
            cache_n=cached,
            prompt_n=prompt_tokens - cached,
            prompt_ms=1000 * (first - self._started),
            predicted_n=self.predicted,
            predicted_ms=1000 * (self._last_token - first) if self._rounds else 0.0,
            draft_n=self._drafted,
            draft_n_accepted=self._accepted,
        )

    def report(self, guards: Sequence[Guard]) -> SessionReport:
        """For those who observe sessions; `guards` are the session's."""
        return SessionReport(
            committed=self.predicted,
            drafted=self._drafted,
            accepted=self._accepted,
            rounds=self._rounds,
            seconds=self._last_token - self._started,
            drafters=tuple(guard.name for guard in guards),
            dropped={guard.name: guard.dropped for guard in guards if guard.dropped},
        )
