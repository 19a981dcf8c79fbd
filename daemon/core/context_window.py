"""How full a request's context is, and what it forgets at its end.

Positions are lengths of the history, its pending token included; the cells hold one id less. A history as long as the
context is the end: then the answer ends, or the context forgets tokens behind the first ones and the answer goes on, as
llama-server's `--context-shift` does it. No round reaches over that length, so with and without drafts the same tokens
are forgotten before the same forward.
"""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.hooks.protocols import ShiftsContext, TargetSession

SPARE = 4  # tokens of the context that can always be forgotten, however many are to be kept


@dataclass(frozen=True, slots=True)
class ContextShift:
    """What a full context may forget: of all but its first `keep` tokens, the oldest `discard`; 0 means half."""

    keep: int = 0
    discard: int = 0

    def forgotten(self, cells: int, n_ctx: int) -> tuple[int, int]:
        """How many of `cells` tokens stay at the beginning, and how many behind them go; fewer than there are."""
        keep = max(0, min(self.keep, n_ctx - SPARE))
        left = cells - keep
        return keep, max(0, min(self.discard or left // 2, left - 1))


class ContextWindow:
    """The context of one request: `n_ctx` tokens, of which `target` forgets some when `shift` says so.

    Without a `shift`, or where the target cannot forget, an answer ends with the context.
    """

    def __init__(self, n_ctx: int, shift: ContextShift | None, target: TargetSession) -> None:
        self.discarded = 0  # tokens forgotten so far
        self._n_ctx = n_ctx
        self._shift = shift
        self._target = target if isinstance(target, ShiftsContext) and target.can_shift else None

    def held(self, position: int) -> int:
        """How many tokens of a history of `position` the context still covers."""
        return position - self.discarded

    def room(self, position: int) -> int:
        """How many tokens may still be committed before the end."""
        return self._n_ctx - self.held(position)

    def ends(self, position: int) -> bool:
        """Whether there is no going on from `position`."""
        return self.room(position) <= 0 and (self._target is None or not self._going(position)[1])

    def full(self, position: int) -> bool:
        """Whether tokens have to be forgotten before the next forward."""
        return self.room(position) <= 0 and not self.ends(position)

    def make_room(self, position: int) -> None:
        """Forget. The target may have a prompt to feed afterwards. Raises EngineError."""
        keep, discard = self._going(position)
        assert self._target is not None  # asked before
        self._target.shift(keep, discard)
        self.discarded += discard

    def _going(self, position: int) -> tuple[int, int]:
        return self._shift.forgotten(self.held(position) - 1, self._n_ctx) if self._shift else (0, 0)
