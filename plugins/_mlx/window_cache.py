"""A cache for layers that see a window, in which a cell's place depends on its position alone.

mlx-lm's `RotatingKVCache` writes single tokens around a ring and rearranges everything for a block, so where a cell
stands depends on how the tokens before it were cut into forwards. Attention adds up cells in the order of their places:
rows then differ in their last bits, and a tail cannot be cut once the window is full. Here position p stands at place
p modulo `ring`, whatever forward wrote it. The ring has room for the window, a block and some tokens more, so that a
rejected tail leaves the whole window of the tokens before it.

Blocks that are too long for the ring, as prompts have them, see the window before them and themselves, in order.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.base import create_causal_mask


class WindowCache:
    """The keys and values of one layer that sees `window` tokens, its own among them. Used by mlx-lm's models."""

    def __init__(self, window: int, ring: int) -> None:
        self.window, self.ring = window, ring
        self.offset = 0  # tokens so far
        self.held = 0  # the first position whose cell is there
        self.keys: Any = None
        self.values: Any = None
        self._wide: tuple[Any, Any] | None = None  # what the last forward saw, where it was too long for the ring

    def update_and_fetch(self, keys: Any, values: Any) -> tuple[Any, Any]:
        """Take in the cells of a forward; what its tokens see, in the order of the mask that was made for it."""
        count = keys.shape[2]
        self._wide = None  # a view that is kept would have the ring copied for every write
        if self.keys is None:
            self.keys = mx.zeros((*keys.shape[:2], self.ring, keys.shape[3]), keys.dtype)
            self.values = mx.zeros((*values.shape[:2], self.ring, values.shape[3]), values.dtype)
        if self._fits(count):
            self._write(keys, values, self.offset)
            self.offset += count
            self.held = max(self.held, self.offset - self.ring)
            return self.keys_and_values()
        seen = min(self.offset, self.window - 1)
        wide = tuple(
            mx.concatenate([*self._ordered(cells, self.offset - seen), new], axis=2)
            for cells, new in ((self.keys, keys), (self.values, values))
        )
        self._wide = wide[0], wide[1]
        self.offset += count
        kept = min(count, self.ring)
        self._write(keys[..., count - kept :, :], values[..., count - kept :, :], self.offset - kept)
        self.held = max(self.held, self.offset - self.ring)
        return self._wide

    def keys_and_values(self) -> tuple[Any, Any]:
        """What the last forward's tokens saw; layers that share another's cells ask for it."""
        if self._wide is not None:
            return self._wide
        used = min(self.offset, self.ring)
        return self.keys[..., :used, :], self.values[..., :used, :]

    def make_mask(self, count: int, window_size: int | None = None, return_array: bool = False) -> Any:
        """Which cells each token of the next forward sees; None and "causal" stand for all up to its own."""
        window = min(window_size or self.window, self.window)
        end = self.offset + count
        if not self._fits(count):
            before = min(self.offset, self.window - 1)
            whole = before + count <= window and not return_array
            return "causal" if whole else create_causal_mask(count, before, window_size=window)
        if end <= window and not return_array:
            return None if count == 1 else "causal"
        last = end - 1
        place = mx.arange(min(end, self.ring))
        position = last - (last - place) % self.ring
        token = mx.arange(self.offset, end)[:, None]
        return (position <= token) & (position > token - window)

    def can_cut(self, size: int) -> bool:
        """Whether everything that a token after the first `size` sees is there."""
        return not self.held or not size or size >= self.held + self.window - 1

    def trim(self, count: int) -> int:
        """Forget the last `count` tokens, which `can_cut` must allow."""
        self.offset -= count
        if not self.offset:
            self.held = 0
        self._wide = None
        return count

    def is_trimmable(self) -> bool:
        return True

    def size(self) -> int:
        return min(self.offset, self.window)

    def empty(self) -> bool:
        return self.keys is None

    @property
    def state(self) -> list[Any]:
        """The arrays, for evaluation."""
        return [] if self.keys is None else [self.keys, self.values]

    def held_cells(self) -> tuple[int, tuple[Any, Any]]:
        """The first position of a whole window, and the cells from there on, in order: what a copy has to hold."""
        first = max(self.held, self.offset - self.window)
        keys, values = (mx.concatenate(self._ordered(cells, first), axis=2) for cells in (self.keys, self.values))
        return first, (keys, values)

    def put(self, first: int, keys: Any, values: Any) -> None:
        """Hold cells that `held_cells` gave, instead of what is held."""
        self.keys = mx.zeros((*keys.shape[:2], self.ring, keys.shape[3]), keys.dtype)
        self.values = mx.zeros((*values.shape[:2], self.ring, values.shape[3]), values.dtype)
        self._write(keys, values, first)
        self.offset, self.held, self._wide = first + keys.shape[2], first, None

    def _fits(self, count: int) -> bool:
        """Whether the window before the first of `count` more tokens is there after the last was written."""
        return min(self.window - 1, self.offset) + count <= self.ring

    def _write(self, keys: Any, values: Any, position: int) -> None:
        start, count = position % self.ring, keys.shape[2]
        first = min(count, self.ring - start)
        for cells, new in ((self.keys, keys), (self.values, values)):
            cells[..., start : start + first, :] = new[..., :first, :]
            if first < count:
                cells[..., : count - first, :] = new[..., first:, :]

    def _ordered(self, cells: Any, first: int) -> list[Any]:
        """The cells from position `first` on, in order, in as many pieces as they have in the ring."""
        if first >= self.offset:
            return []
        start, end = first % self.ring, self.offset % self.ring or self.ring
        if start < end:
            return [cells[..., start:end, :]]
        return [cells[..., start:, :], cells[..., :end, :]]
