"""In which mixes chats are asked together: in what order they begin, how far apart, and who of them drafts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pilotfish.daemon.lab.parity_replays import Replay

SLOTS = 4  # chats that are answered at a time
N_MIXES = 8
WIDTHS = (4, 16, 2, 8)  # tokens in a request's forward: four requests can share those of 4, two those of 8
STAGGERS = ((0,), (1,), (3, 0), (0, 0, 6), (8,), (2, 5, 0, 1), (12, 0, 0), (4,))
FITS = (16, 1, 3, 0, 7, 2)  # lengths of proposals that come in fits


class Drafting(StrEnum):
    """Which requests of a mix speculate."""

    OFF = "off"
    ON = "on"
    MIXED = "mixed"  # every second one
    PAYING = "as it pays"  # all, with the controller's choice of what to verify

    def drafts(self, place: int) -> bool:
        """Whether the request of the chat at `place` of its mix does."""
        return self is not Drafting.OFF and (self is not Drafting.MIXED or place % 2 == 0)


@dataclass(frozen=True, slots=True)
class Mix:
    """Chats by number, in the order in which they begin.

    The one at a place begins once the one before it has said `staggers[place]` tokens, or has ended.
    """

    number: int  # from 1 on
    order: tuple[int, ...]
    staggers: tuple[int, ...]
    width: int

    def replay(self, place: int, answer: Sequence[int]) -> Replay:
        """How the answer of the chat at `place` is proposed: right, partly wrong, in fits, wrong throughout."""
        kinds = Replay(answer), Replay(answer, 3), Replay(answer, 5, FITS), Replay(answer, 1)
        return kinds[(place + self.number) % len(kinds)]


def mixes(chats: int) -> tuple[Mix, ...]:
    """Eight mixes of so many chats; the first has them as they come."""
    return tuple(_mix(number, chats) for number in range(N_MIXES))


def _mix(number: int, chats: int) -> Mix:
    order = random.Random(number).sample(range(chats), chats) if number else range(chats)
    stagger = STAGGERS[number]
    staggers = tuple(stagger[place % len(stagger)] for place in range(chats))
    return Mix(number + 1, tuple(order), staggers, WIDTHS[number % len(WIDTHS)])
