"""The history of a reproduction, written anew into a probe's cells in one way or another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pilotfish.daemon.certify.lanes import MAX_WIDTH
from pilotfish.daemon.certify.probe_driver import Deadline
from pilotfish.daemon.certify.reproductions import PastRound, Reproduction
from pilotfish.daemon.lab.diagnose.diagnosis import PastKind
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import Probe

PROPOSALS = 16  # or as many as make up a wider forward that was asked about
ANSWERED = 16  # ids at the end of a prefix that are taken to be an answer where nobody knows
_SEED = 41


def proposals_of(asked: Reproduction) -> int:
    """So many ids follow the pending one, so that both forwards consist of ids and not of padding."""
    return max(PROPOSALS, asked.plain.width - 1, asked.other.width - 1)


def widest(asked: Reproduction) -> int:
    """Tokens of the widest forward that is run."""
    return max(MAX_WIDTH, asked.plain.width, asked.other.width, *(round.width for round in asked.rounds))


def room(asked: Reproduction) -> int:
    """Cells that are needed after the prefix."""
    return proposals_of(asked) + widest(asked)


class HistoryReplay:
    """`asked` in the cells of `probe`, which nobody else uses meanwhile.

    Its calls raise EngineError, and OutOfTime once the deadline has passed.
    """

    def __init__(self, probe: Probe, asked: Reproduction, block: int, deadline: Deadline) -> None:
        self.probe, self.asked, self._block, self._deadline = probe, asked, block, deadline
        self.start = len(asked.prefix) - 1  # cells before the next forward
        self.prompt = asked.prompt or max(1, len(asked.prefix) - ANSWERED)
        count = proposals_of(asked)
        random = np.random.default_rng(_SEED).integers(0, probe.n_vocab, 2 * count)
        filled = [*asked.following, *map(int, random[:count])][:count]
        self.ids = [*asked.prefix, *filled]
        self.junk = [int(id) for id in random[count:]]
        self._kind: PastKind | None = None  # of what the cells hold up to `start`
        self._filled = 0  # cells of rounds that were replayed, while the history is written

    def ready(self, kind: PastKind) -> None:
        """Have the cells before the pending id written in this way, anew only where they are not."""
        if self._kind is kind:
            self.back()
        else:
            self.build(kind)

    def build(self, kind: PastKind) -> None:
        """Write the cells before the pending id."""
        held, self._kind = self._kind, None
        if kind is PastKind.FRESH:
            self.probe.clear()
            self._feed(self.start)
        else:
            if held in (None, PastKind.FRESH) or not self.probe.cut(self.prompt - 1):
                self.probe.clear()
                self._feed(self.prompt - 1)
            self._filled = self.prompt - 1
            for round in self._singles() if kind is PastKind.SINGLE else self._rounds():
                self._replay(round)
        self._kind = kind

    def back(self) -> None:
        """Cut what came after the pending id's place, or write everything again where that cannot be cut."""
        if not self.probe.cut(self.start) and self._kind is not None:
            self.build(self._kind)

    def rows(self, tokens: Sequence[int], width: int) -> list[bytes]:
        """One forward."""
        self._deadline.check()
        return self.probe.rows(tokens, width)

    def walk(self, width: int) -> list[bytes]:
        """The rows of the pending id and of all proposals, in forwards of `width`; `back` afterwards."""
        found: list[bytes] = []
        at = self.start
        while at < len(self.ids):
            tokens = self.ids[at : at + width]
            found += self.rows(tokens, width)
            at += len(tokens)
            self.probe.cut(at)  # padding
        self.back()
        return found

    def _feed(self, size: int) -> None:
        for at in range(0, size, self._block):
            self._deadline.check()
            self.probe.feed(self.ids[at : min(at + self._block, size)])

    def _singles(self) -> list[PastRound]:
        width = self.asked.plain.width  # more than one where the lane is padded
        return [PastRound(width, (), 1)] * (self.start + 1 - self.prompt)

    def _rounds(self) -> Sequence[PastRound]:
        """As they were; else blocks of the other width, all of which was accepted, the last one padded if it can be."""
        if self.asked.rounds:
            return self.asked.rounds
        width, found, at = self.asked.other.width, list[PastRound](), self.prompt
        while at < self.start + 1:
            count = min(width, self.start + 1 - at)
            found.append(
                PastRound(count if self.probe.obstacle else width, tuple(self.ids[at : at + count - 1]), count)
            )
            at += count
        return found

    def _replay(self, round: PastRound) -> None:
        at = self._filled
        tokens = [self.ids[at], *round.proposed]
        width = max(round.width, len(tokens))
        self.rows(tokens, width)
        self._filled = at + round.committed
        if width > round.committed and not self.probe.cut(self._filled):
            raise EngineError(
                f"{self.asked.model}: rejected tokens cannot be cut from its cells: {self.probe.obstacle}"
            )
