"""The ids of a session that its cells hold or will hold: all of its history, or what a full context kept of it."""

from __future__ import annotations

from array import array

from pilotfish.hooks.history import History


class KeptIds:
    """A view on a growing history that leaves out the ids which were forgotten behind its first ones."""

    def __init__(self, history: History) -> None:
        self.forgotten = 0
        self._history = history
        self._start = 0  # where the forgotten ones begin

    def __len__(self) -> int:
        return len(self._history) - self.forgotten

    @property
    def tokens(self) -> array[int]:
        """Not to be changed."""
        tokens = self._history.tokens
        return tokens[: self._start] + tokens[self._start + self.forgotten :] if self.forgotten else tokens

    def forget(self, keep: int, count: int) -> None:
        """Leave out `count` more ids behind the first `keep`, which must be as many every time."""
        if self.forgotten and keep != self._start:
            raise ValueError(f"{self._start} ids were kept the first time; {keep} cannot be kept now")
        self._start = keep
        self.forgotten += count
