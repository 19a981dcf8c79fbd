"""Watches what a context computes: the callback that ggml's scheduler asks about every tensor, and what it saw.

A watched forward is computed in as many pieces as there are tensors to look at. That its rows are still those of a
forward that nobody watches is for the caller to check.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.inspection import Operation
from pilotfish.plugins._cells.context import digest_of
from pilotfish.plugins._cells.ggml_tensors import TensorFacts, TensorReader

WatchCallback = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)

# What computes no number, and what writes into the cache: such a tensor is all of it, and `cells` compares that.
_PASSED_OVER = frozenset({"NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE", "SET_ROWS", "CPY"})
_PRODUCTS = ("MUL_MAT", "FUSED")


class ForwardWatch:
    """`callback` is for a context's parameters, and lives as long as this. Raises EngineError, see TensorReader."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.callback = WatchCallback(self._called)
        self._reader = TensorReader(library)
        self._width = 0  # of the forward that is watched; 0: none is
        self._seen: list[Operation] = []
        self._trouble: Exception | None = None

    def begin(self, width: int) -> None:
        """Look at the forwards that follow, of `width` tokens each."""
        self._width, self._seen, self._trouble = width, [], None

    def end(self) -> tuple[Operation, ...]:
        """Look no more; what was seen, in the order of computation. Raises EngineError where something could not be."""
        self._width = 0
        if self._trouble is not None:
            raise EngineError(f"a forward could not be looked into: {self._trouble!r}") from self._trouble
        return tuple(self._seen)

    def _called(self, tensor: int, ask: bool, user: Any) -> bool:
        """`ask`: whether to be called again once it is computed; otherwise whether to go on."""
        if not self._width:
            return not ask
        try:
            facts = self._reader.facts(tensor)
            if ask:
                return facts.kind not in _PASSED_OVER
            self._seen.append(self._operation(tensor, facts))
        except Exception as error:  # nothing may be raised through the library
            self._trouble = error
        return True

    def _operation(self, tensor: int, facts: TensorFacts) -> Operation:
        weights, number_format = "", facts.number_format
        if facts.kind.startswith(_PRODUCTS):
            weights, stored_as = self._reader.stored_source(tensor)
            number_format = stored_as or number_format
        numbers = self._reader.numbers(tensor, facts)
        if numbers is None:
            digest, slices = digest_of(self._reader.bytes(tensor)), {}
        else:
            digest, slices = digest_of(numbers), self._slices(numbers)
        return Operation(facts.name, facts.kind, facts.shape, digest, slices, weights, number_format)

    def _slices(self, numbers: npt.NDArray[Any]) -> dict[int, tuple[bytes, ...]]:
        """Digests along each axis that may be the tokens'; the innermost one never is."""
        last = numbers.ndim - 1
        return {
            axis: tuple(digest_of(np.take(numbers, i, last - axis)) for i in range(self._width))
            for axis in range(1, numbers.ndim)
            if numbers.shape[last - axis] == self._width
        }
