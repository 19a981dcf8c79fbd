"""What proposals take to be made, by drafter and by how many tokens are asked for; and what a session's start takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SMOOTHING = 0.3
STALL = 3.0  # times the known cost: a stalled machine or network, not a dearer proposal


@dataclass(slots=True)
class _Opening:
    per_token: float = 0.0  # seconds of prompt
    count: int = 0


class DraftCosts:
    """Seconds, as the drafters' own threads measured them: knowing them costs the request nothing."""

    def __init__(self) -> None:
        self._proposals: dict[str, dict[int, float]] = {}  # drafter -> tokens asked for -> seconds
        self._openings: dict[str, _Opening] = {}
        self._won: dict[str, float] = {}  # seconds that the drafter's rounds saved, less what its openings took

    def observe(self, drafter: str, k: int, seconds: float) -> None:
        """A proposal of up to `k` tokens took so long."""
        known = self._proposals.setdefault(drafter, {})
        if k in known:
            known[k] += SMOOTHING * (min(seconds, STALL * known[k]) - known[k])
        else:
            known[k] = seconds

    def seconds(self, drafter: str, k: int) -> float | None:
        """What a proposal of up to `k` tokens should take, from the nearest number asked for; None: never asked.

        More tokens are taken to cost in proportion, fewer to cost no less: whichever is the more careful guess.
        """
        known = self._proposals.get(drafter)
        if not known:
            return None
        near = min(known, key=lambda asked: (abs(asked - k), asked))
        return known[near] * max(1.0, (k + 1) / (near + 1))

    def opened(self, drafter: str, tokens: int, seconds: float) -> None:
        """A session was started on a prompt of so many tokens."""
        opening = self._openings.setdefault(drafter, _Opening())
        opening.per_token = seconds / max(1, tokens)
        opening.count += 1
        self.won(drafter, -seconds)

    def won(self, drafter: str, seconds: float) -> None:
        """A round with this drafter's tokens saved so much against plain steps; negative when it lost."""
        self._won[drafter] = self._won.get(drafter, 0.0) + seconds

    def worth_opening(self, drafter: str, tokens: int, allowance: float) -> bool:
        """Whether a session on a prompt of `tokens` may be started on this machine.

        The first may; after that a drafter pays for its openings with what its rounds saved, or out of `allowance`,
        seconds that trying may cost over all requests.
        """
        opening = self._openings.get(drafter)
        if opening is None or not opening.count:
            return True
        return self._won.get(drafter, 0.0) + allowance >= opening.per_token * tokens

    def describe(self) -> list[dict[str, Any]]:
        """JSON-ready; safe from any thread. Times are seconds."""
        return [
            {
                "drafter": drafter,
                "proposals": [{"tokens": k, "seconds": seconds} for k, seconds in sorted(dict(known).items())],
                "won": self._won.get(drafter, 0.0),
            }
            for drafter, known in sorted(dict(self._proposals).items())
        ]
