"""Where the last few tokens occurred before: an index over token ids with constant work per token.

How it works. For each n in `LEVELS` there is a hash table over the n-grams of the history, built like the one in
DEFLATE compressors: `heads[bucket]` is the end of the latest n-gram that fell into the bucket and `prev[end]` the
end of the one before it. An n-gram is entered only when the token after it is known, so every entry has a
continuation. A query walks the chain of the longest n first, a bounded number of links, and compares the ids
themselves; a hash collision costs a link, never a wrong answer.

A bucket is the top bits of a hash, so a table doubles by repeating every head twice: both halves go on sharing the
old chain. That is one C-speed copy, not a rehash, which keeps the worst single token cheap too.

Memory: 4 bytes per token and level for `prev`, 4 to 8 for `heads`; with the ids themselves 36 to 52 bytes per token.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from operator import mul
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

LEVELS = (1, 2, 4, 8, 16)  # n-gram lengths, in tokens; from the second on each is twice the one before
MAX_MATCH = 32  # tokens; two matches at least this long count as equally long
WALK = 4  # links followed per candidate wanted, before a level gives up
SINGLES = 4  # places that are looked at where only the last token occurred before
BULK = 512  # tokens; from here on numpy enters them faster than one at a time

_MASK = (1 << 64) - 1
_MULTIPLIER = 0x9E3779B97F4A7C15  # odd, its bits well mixed (2**64 / golden ratio)
_POWERS = [pow(_MULTIPLIER, i + 1, 1 << 64) for i in range(LEVELS[-1])]
_SEGMENTS = [(low, high, _POWERS[low:high]) for low, high in zip((0, *LEVELS), LEVELS, strict=False)]
_FIRST_BITS = 10

_Hashes = npt.NDArray[np.uint64]


class Match(NamedTuple):
    """The last `length` ids of the context stand right before `end`; `tokens[end]` followed them.

    `length` stops counting at MAX_MATCH.
    """

    end: int
    length: int


class _Level:
    """Chains of equal n-grams (and of those that share their bucket), latest first. End 0 means "no more"."""

    __slots__ = ("heads", "n", "prev", "shift")

    def __init__(self, n: int) -> None:
        self.n = n
        self.shift = 64 - _FIRST_BITS
        self.heads = array("i", bytes(4 << _FIRST_BITS))
        self.prev = array("i", [0])  # prev[end]; ends count from 1

    def add(self, digest: int) -> None:
        """Enter the n-gram that ends one token after the last one entered."""
        end = len(self.prev)
        if end > len(self.heads):
            self._grow(end)
        bucket = digest >> self.shift
        self.prev.append(self.heads[bucket])
        self.heads[bucket] = end

    def skip(self) -> None:
        """Pass over an end that has fewer than n tokens before it."""
        self.prev.append(0)

    def add_many(self, digests: _Hashes) -> None:
        """`add` for every one of `digests: (m,) uint64`, oldest first."""
        start = len(self.prev)
        self._grow(start + len(digests))
        buckets = digests >> np.uint64(self.shift)
        heads = np.frombuffer(self.heads, np.intc)  # shares memory with the array
        order = np.argsort(buckets, kind="stable")
        grouped = buckets[order]
        ends = (order + start).astype(np.intc)
        before = np.empty(len(order), np.intc)
        before[1:] = ends[:-1]
        first = np.ones(len(order), bool)
        first[1:] = grouped[1:] != grouped[:-1]
        before[first] = heads[grouped[first]]
        linked = np.empty(len(order), np.intc)
        linked[order] = before
        self.prev.frombytes(linked.tobytes())
        last = np.roll(first, -1)
        heads[grouped[last]] = ends[last]

    def drop(self, n: int) -> None:
        """Forget the oldest `n` ends that were entered; the others move down by n."""
        prev = np.maximum(np.frombuffer(self.prev, np.intc)[n:] - np.intc(n), 0)
        prev[0] = 0
        self.prev = array("i", prev.tobytes())
        self.heads = array("i", np.maximum(np.frombuffer(self.heads, np.intc) - np.intc(n), 0).tobytes())

    def chain(self, digest: int) -> Iterator[int]:
        """Ends in the bucket of `digest`, latest first."""
        prev = self.prev
        end = self.heads[digest >> self.shift]
        while end:
            yield end
            end = prev[end]

    def _grow(self, ends: int) -> None:
        while ends > len(self.heads):
            doubled = np.repeat(np.frombuffer(self.heads, np.intc), 2)
            self.heads = array("i", doubled.tobytes())
            self.shift -= 1


class SuffixIndex:
    """Finds earlier occurrences of the end of a context in `tokens`.

    `tokens` stays its owner's: append to it, then call `update`. Ids already indexed must not change.
    """

    __slots__ = ("_levels", "tokens")

    def __init__(self, tokens: array[int]) -> None:
        self.tokens = tokens
        self._levels = tuple(_Level(n) for n in LEVELS)
        self.update()

    @property
    def entered(self) -> int:
        """How many ends are entered: all but the last token's, once `update` was called."""
        return len(self._levels[0].prev) - 1

    def update(self, most: int | None = None) -> None:
        """Enter what was appended to `tokens` and not entered yet, at most `most` tokens of it.

        Amortized constant time per token.
        """
        entered = self.entered
        ready = len(self.tokens) - 1  # the n-grams that end at the last token have no continuation yet
        if most is not None:
            ready = min(ready, entered + most)
        if ready - entered >= BULK:
            self._enter_many(entered, ready)
            return
        for end in range(entered + 1, ready + 1):
            digests = _digests(self.tokens, end)
            for i, level in enumerate(self._levels):
                if i < len(digests):
                    level.add(digests[i])
                else:
                    level.skip()

    def drop(self, n: int) -> None:
        """Forget the oldest `n` tokens, which are removed from `tokens`; at least one must stay.

        Takes time in proportion to what stays (1 million tokens: about 50 ms on one busy core), so drop many at once.
        """
        del self.tokens[:n]
        for level in self._levels:
            level.drop(n)

    def matches(self, context: array[int], least: int, most: int, digests: Sequence[int] | None = None) -> list[Match]:
        """At most `most` places where the last `least` or more ids of `context` occurred and went on.

        The longest come first, of equal ones the latest. Longer n-grams are asked first, within one n the latest;
        single tokens only where nothing longer was found, and few of them. Constant time: neither the length of
        `tokens` nor that of `context` enters. `digests` are `digests_at_end(context)`, if known already.
        """
        found: dict[int, Match] = {}
        tail = context[-MAX_MATCH:]
        if digests is None:
            digests = digests_at_end(context)
        for level, digest in zip(self._levels[len(digests) - 1 :: -1], digests[::-1], strict=False):
            if level.n == 1:
                if found or least > 1:
                    break
                most = min(most, SINGLES)
            budget = WALK * most
            for end in level.chain(digest):
                if end not in found:
                    length = self._length(tail, end)
                    if length >= max(least, level.n):
                        found[end] = Match(end, length)
                budget -= 1
                if len(found) == most or not budget:
                    break
            if len(found) == most:
                break
        return sorted(found.values(), key=_length_of, reverse=True)

    def nbytes(self) -> int:
        """Bytes held, the ids included."""
        links = sum(len(level.heads) + len(level.prev) for level in self._levels)
        return (links + len(self.tokens)) * self.tokens.itemsize

    def _length(self, tail: array[int], end: int) -> int:
        """How many ids before `end` are the last ones of `tail`."""
        earlier = self.tokens[max(0, end - len(tail)) : end]
        if earlier == tail:
            return len(tail)
        length = 0
        for ours, theirs in zip(reversed(earlier), reversed(tail), strict=False):
            if ours != theirs:
                break
            length += 1
        return length

    def _enter_many(self, entered: int, ready: int) -> None:
        start = max(0, entered + 1 - LEVELS[-1])  # the oldest token that an n-gram still to enter may hold
        ids = np.array(self.tokens[start:ready], np.int64).view(np.uint64)
        digests = ids * np.uint64(_MULTIPLIER)  # of one token; digests[i] ends at start + i + 1
        offset = start + 1
        for level, n in zip(self._levels, (0, *LEVELS), strict=False):  # n: what the digests cover, of the level before
            if n:
                digests = digests[n:] + digests[:-n] * np.uint64(_POWERS[n - 1])
                offset += n
            while len(level.prev) < offset:
                level.skip()
            level.add_many(digests[len(level.prev) - offset :])


def _length_of(match: Match) -> int:
    return match.length


def digests_at_end(context: array[int]) -> list[int]:
    """What `SuffixIndex.matches` looks up, for asking several indexes about one context."""
    return _digests(context, len(context))


def _digests(tokens: Sequence[int], end: int) -> list[int]:
    """Hashes of the n-grams before `end`, one per level that has enough tokens: sum of id(-i) * M**i mod 2**64."""
    digests: list[int] = []
    total = 0
    for low, high, powers in _SEGMENTS:
        if high > end:
            break
        total += sum(map(mul, reversed(tokens[end - high : end - low]), powers))
        digests.append(total & _MASK)
    return digests
