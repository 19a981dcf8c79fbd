"""Tokens a second now, from reports that come when there is news."""

from __future__ import annotations

from pilotfish.daemon.control.control_client import REPORT_EVERY

_PAUSE = 1.5 * REPORT_EVERY  # between two reports, from which on there was nothing to tell for a while
_STALE = 2.5 * REPORT_EVERY  # after which no report means that there is nothing to tell


class Pace:
    """How fast one runner answers. Times are seconds of any clock that only moves on."""

    def __init__(self) -> None:
        self._tokens: int | None = None
        self._at = 0.0
        self._rate = 0.0

    def heard(self, tokens: int, at: float) -> None:
        """A report has come: so many tokens since the runner began."""
        if self._tokens is not None:
            # After a pause, what came did so since a report would have told of it: the pause is no part of the pace.
            seconds = at - self._at if at - self._at < _PAUSE else REPORT_EVERY
            if seconds <= 0:
                return
            self._rate = max(0, tokens - self._tokens) / seconds
        self._tokens, self._at = tokens, at

    def now(self, at: float) -> float:
        """Tokens a second; 0 when nothing was heard for a while."""
        return self._rate if at - self._at < _STALE else 0.0
