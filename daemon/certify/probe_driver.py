"""A probe with something to feed it: fixed token sequences, and walks over them in blocks of one width."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pilotfish.daemon.certify.lanes import Site
from pilotfish.hooks.protocols import Probe

FEW, GIVEN = 1000, 2000  # the numbers of materials
_SEED = 23


class OutOfTime(Exception):
    """The budget is spent; what was compared stays."""


class Deadline:
    """A point in time that work is checked against. `clock` counts seconds."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds

    @property
    def left(self) -> float:
        """Seconds until then; negative when it has passed."""
        return self._end - self._clock()

    def check(self) -> None:
        """Raises OutOfTime when it has passed."""
        if self.left <= 0:
            raise OutOfTime

    def sooner(self, seconds: float) -> Deadline:
        """A deadline that many seconds from now, or this one if it comes first."""
        return Deadline(min(seconds, self.left), self._clock)


class GivenIds(NamedTuple):
    """Ids after which forwards were seen to part; the last of `prefix` is the first of the forward."""

    prefix: tuple[int, ...]
    following: tuple[int, ...]


class Material:
    """Token sequences of any length, the same in every process: even numbers are random ids, odd ones text, and FEW
    has two ids only, in random order, so that the same experts get most rows of a block. From GIVEN on they are
    `given`, and random ids follow.

    Text begins with `bos` if there is one: without it the rows of a model that expects it scatter several times as far.
    """

    def __init__(
        self, n_vocab: int, text: Sequence[int], bos: int | None = None, given: Sequence[GivenIds] = ()
    ) -> None:
        self.given = given
        self._n_vocab = n_vocab
        self._text = list(text)
        self._begin = [] if bos is None else [bos]
        self._made: dict[int, list[int]] = {}

    def ids(self, number: int, length: int) -> list[int]:
        """The first `length` ids of sequence `number`."""
        known = self._made.get(number, [])
        if len(known) < length:
            known = self._made[number] = self._make(number, max(length, 2 * len(known)))
        return known[:length]

    def _make(self, number: int, length: int) -> list[int]:
        if number % 2 and self._text and number < GIVEN:
            begin = (number // 2 * 97) % len(self._text)
            turned = self._text[begin:] + self._text[:begin]
            return [*self._begin, *(turned * (length // len(turned) + 1))][:length]
        most = 2 if number == FEW else self._n_vocab
        # a longer draw from the same seed begins like a shorter one
        random = np.random.default_rng(_SEED + number)
        known = [*itertools.chain(*self.given[number - GIVEN])] if number >= GIVEN else []
        return [*known, *(int(id) for id in random.integers(0, most, length))][:length]


class ProbeDriver:
    """Feeds a probe. A site's prefix is always written by the same prompt blocks: `block` tokens, from position 0."""

    def __init__(self, probe: Probe, material: Material, deadline: Deadline, block: int = 512) -> None:
        self.probe = probe
        self.material = material
        self.deadline = deadline
        self.block = block
        self.fed = 0.0  # seconds that the last `goto` fed prompt blocks
        self._number = -1  # of the material whose prefix is in the cache
        self._prefix = 0  # cells written by prompt blocks and still whole
        self._steps = 0  # taken by `step_near` since
        self.timed: dict[int, dict[int, list[bytes]]] = {}  # position -> width -> rows of what was timed there

    def walk(self, site: Site, width: int, rows: int | None = None) -> list[bytes]:
        """The digests of the site's rows in blocks of `width`: as many whole blocks as fit `rows` (at least one)."""
        count = max(1, (site.rows if rows is None else rows) // width) * width
        ids = self.goto(site, site.start + count)
        digests: list[bytes] = []
        for at in range(site.start, site.start + count, width):
            digests += self.rows(ids[at : at + width], width)
        return digests

    def rows(self, tokens: Sequence[int], width: int) -> list[bytes]:
        """One forward."""
        self.deadline.check()
        return self.probe.rows(tokens, width)

    def step_near(self, position: int, room: int) -> None:
        """One single step at `position`, or behind the one before, up to `room` tokens after it."""
        if not (self._number == 0 and self._prefix == position and 0 < self._steps < room - 1):
            self.goto(Site(0, position, 1))
        step = self._steps
        rows = self.rows(self.material.ids(0, position + step + 1)[-1:], 1)
        self._steps = step + 1
        known = self.timed.setdefault(position, {}).setdefault(1, [])
        if step == len(known):
            known += rows

    def block_at(self, position: int, width: int) -> None:
        """One forward of `width` at `position`."""
        site = Site(0, position, width)
        rows = self.rows(self.goto(site, site.end)[position:], width)
        self.timed.setdefault(position, {}).setdefault(width, rows)

    def goto(self, site: Site, length: int = 0) -> list[int]:
        """Bring the cache to the site's start; returns the first `length` ids of its material."""
        start = site.start
        ids = self.material.ids(site.material, max(start, length))
        same = site.material == self._number
        keep = min(self._prefix, start) if same else 0
        if keep != start or self._prefix != start:
            keep -= keep % self.block  # the blocks before it were whole
        if keep == 0 or not self.probe.cut(keep):
            self.probe.clear()
            keep = 0
        self._number, self._steps = site.material, 0
        self._prefix, self.fed = keep, 0.0
        while self._prefix < start:
            end = min(self._prefix - self._prefix % self.block + self.block, start)
            self.deadline.check()
            self.probe.feed(ids[self._prefix : end])
            self.fed += self.probe.seconds
            self._prefix = end
        return ids

    def forget(self) -> None:
        """Empty the cache."""
        self.probe.clear()
        self._number, self._prefix, self._steps = -1, 0, 0
