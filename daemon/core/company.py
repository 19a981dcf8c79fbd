"""Who else takes a round in the same turn: what a request's time is worth depends on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Company:
    """The requests that take a round in this turn, of which `together(width)` may share a forward of that width each.

    A plain step of one is then a share of theirs, and a draft has to earn more than the others' tokens that it delays.
    """

    requests: int = 1
    together: Callable[[int], int] = lambda width: 1


ALONE = Company()
