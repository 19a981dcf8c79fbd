"""Forwards of several sequences of one context at once.

Every sequence has as many tokens in it as the others. libllama cuts a batch into pieces in which that holds and whose
sequences follow one another in number: unequal ones, or sequences with gaps between them, would be forwards one after
the other, each with rows of its own width. (Read in `llama_batch_allocr::split_equal`; measured, and gaps cost it.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pilotfish.plugins._cells.context import CellContext
from pilotfish.plugins._cells.library_context import Batch, LibraryContext


class JointForward:
    """A batch for contexts that share a handle, with room for `capacity` rows. `close` it before the contexts."""

    def __init__(self, library: Any, capacity: int) -> None:
        self.capacity = capacity
        self._decode = library.llama_decode
        self._batch = Batch(library, capacity, logits=True)

    def run(self, blocks: Sequence[tuple[CellContext, Sequence[int]]], width: int) -> None:
        """Forward each block's tokens, padded to `width` with its last one. Raises EngineError.

        The contexts know their rows afterwards. What their caches hold after an error is unknown, so `clear` them.
        """
        blocks = sorted(blocks, key=lambda block: block[0].sequence)
        batch, at = self._batch, 0
        for context, tokens in blocks:
            end, count = at + width, len(tokens)
            batch.assign(at, end, context.sequence)
            batch.tokens[at : at + count] = tokens
            batch.tokens[at + count : end] = tokens[-1]
            batch.positions[at:end] = range(context.size, context.size + width)
            at = end
        batch.struct.n_tokens = at
        first = blocks[0][0]
        assert isinstance(first, LibraryContext)
        if code := self._decode(first.handle, batch.struct):
            first.fail(code)
        for i, (context, _) in enumerate(blocks):
            context.forwarded(width, i * width)

    def close(self) -> None:
        """Free the batch."""
        self._batch.free()


def joint_forward(contexts: Sequence[CellContext], capacity: int) -> JointForward | None:
    """None where the contexts cannot be in one forward."""
    first = contexts[0]
    shared = len(contexts) > 1 and all(context.handle is first.handle for context in contexts)
    return JointForward(first.library, capacity) if shared and isinstance(first, LibraryContext) else None
