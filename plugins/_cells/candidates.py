"""The array of candidates that samplers and grammars of the llama.cpp family work on."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from pilotfish.plugins._cells.context import Logits

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Candidates:
    """A `llama_token_data_array` over a numpy array. `entry` and `struct` are the library's own structures."""

    def __init__(self, entry: Any, struct: Any, size: int) -> None:
        self.array = np.zeros(size, dtype=_CANDIDATE)
        self._ids = np.arange(size, dtype=np.int32)
        self._data = self.array.ctypes.data_as(ctypes.POINTER(entry))
        self._struct = struct(self._data, size, -1, False)
        self.pointer = ctypes.byref(self._struct)

    def fill(self, row: Logits | float) -> None:
        """Set ids and logits anew: samplers sort the array in place and may point elsewhere."""
        self.array["id"] = self._ids
        self.array["logit"] = row
        self._struct.data, self._struct.size = self._data, len(self.array)
        self._struct.selected, self._struct.sorted = -1, False

    def any_left(self) -> bool:
        """Whether any logit is above minus infinity."""
        return bool((self.array["logit"] > -np.inf).any())

    def selected(self) -> int:
        """The id that the chain selected."""
        token: int = self._struct.data[self._struct.selected].id
        return token
