"""One request on the engine: prefill, then forwards that are committed or taken back.

    PREFILLING --prefill--> READY --verify--> VERIFIED --commit--> READY
                                                       --rollback-> READY
    any failure of the engine: FAILED, from which only `close` leads anywhere

The cells hold the history minus its last token, the pending one, which leads every forward. A forward of
width w adds w cells; a commit of n tokens keeps n of them (pending and the first n - 1 picks, whose ids the
forward held) and cuts the rejected proposals and the padding, nothing else. Where the memory cannot be cut, it
takes the whole forward back and runs the n tokens again.

A full context may forget ids behind the first ones (`shift`, from READY): the history stays whole, the cells hold what
was kept of it. Where they cannot be moved, they are fed again, in prompt blocks (PREFILLING). Moved cells saw ids that
are gone, so no later prompt may have them.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Callable, Sequence
from typing import TypeVar

from pilotfish.hooks.errors import EngineError, ProtocolViolation
from pilotfish.hooks.history import History
from pilotfish.hooks.types import Ack, Lane, TokenLogprob
from pilotfish.plugins._cells.dialect import EngineTokenizer, Sampler
from pilotfish.plugins._cells.kept_ids import KeptIds
from pilotfish.plugins._cells.logprobs import token_logprob
from pilotfish.plugins._cells.shift import shift
from pilotfish.plugins._cells.slot import CellSlot

T = TypeVar("T")


class SessionState(enum.Enum):
    """Where a session is; see the module's diagram."""

    PREFILLING = "prefilling"
    READY = "ready"
    VERIFIED = "verified"
    CLOSED = "closed"
    FAILED = "failed"


class CellSession:
    """A `SlotSession` in slot number `slot_id`. Calls out of order raise ProtocolViolation and change nothing."""

    def __init__(
        self,
        slot: CellSlot,
        slot_id: int,
        prompt: array[int],
        sampler: Sampler,
        lane: Lane,
        tokenizer: EngineTokenizer,
        on_close: Callable[[], None],
    ) -> None:
        self.slot, self.slot_id = slot, slot_id
        self._sampler, self._tokenizer, self._on_close = sampler, tokenizer, on_close
        self._n_vocab = tokenizer.n_vocab
        self._padded = [lane.pad(width) for width in range(1, lane.max_width + 1)]
        self._prompt_length = len(prompt)
        self.history = History(prompt)
        self._kept = KeptIds(self.history)
        self.cached = slot.reuse(prompt)
        self.rows: CellRows | None = None
        self._draws = 0
        self.state = SessionState.READY if self.cached == len(prompt) - 1 else SessionState.PREFILLING

    def prefill(self) -> int:
        """Feed the next prompt block, in blocks whose boundaries are fixed from position 0; what is left to feed."""
        self._expect(SessionState.PREFILLING, SessionState.READY)
        if self.state is SessionState.READY:
            return 0
        left = self._guarded(lambda: self.slot.feed_block(self._kept.tokens, len(self._kept) - 1))
        if not left:
            self.state = SessionState.READY
        return left

    def verify(self, proposals: Sequence[int]) -> CellRows:
        """One forward over the pending token and `proposals`.

        Raises ProtocolViolation for ids outside the vocabulary or more of them than the lane is wide, and
        EngineError when they do not fit the context. Where only the lane's padding does not fit, the last
        proposals are left out: the rows say how many were verified.
        """
        tokens = self.prepare(proposals)
        width = self._padded[len(tokens) - 1]
        self._guarded(lambda: self._forward(tokens, width))
        return self.forwarded(tokens)

    def prepare(self, proposals: Sequence[int], width: int = 0) -> list[int]:
        """The tokens of a forward that has `width` rows of this session, or as many as they need, which fit.

        Raises as `verify`. Whoever runs the forward calls `forwarded` with them then, or `fail`.
        """
        self._expect(SessionState.READY)
        tokens = [self.history.tokens[-1], *proposals]
        self._fit(tokens, width)
        if len(self.slot.tokens) < len(self._kept) - 1:  # a rollback that could not cut dropped the cells
            self._guarded(self._feed_again)
        return tokens

    def forwarded(self, tokens: list[int]) -> CellRows:
        """The rows of a forward of `tokens`."""
        self.state = SessionState.VERIFIED
        self._draws = self._sampler.draws
        self.rows = CellRows(self, tokens[1:])
        return self.rows

    def fail(self) -> None:
        """The engine failed in a forward of this session: nothing in its cells is certain."""
        self.state = SessionState.FAILED
        self.slot.clear()

    def _fit(self, tokens: list[int], width: int) -> None:
        """Take the last proposals from `tokens` where the lane's padding would not fit, or could not be cut."""
        if len(tokens) > len(self._padded):
            raise ProtocolViolation(f"{len(tokens)} tokens in one forward; the lane allows {len(self._padded)}")
        for token in tokens:
            if not 0 <= token < self._n_vocab:
                raise ProtocolViolation(f"proposed id {token} is outside the vocabulary of {self._n_vocab} tokens")
        room = self.slot.context.cells - len(self._kept) + 1
        if max(len(tokens), width, self._padded[0]) > room:
            need = max(len(tokens), width)
            raise EngineError(f"a forward of {need} tokens, but the context has {room} cells left; stop before")
        while len(tokens) > 1 and self._padded[len(tokens) - 1] > min(room, self.room):
            tokens.pop()

    @property
    def room(self) -> int:
        """How many cells a forward may add here so that each of them can be cut."""
        context = self.slot.context
        unbroken = context.memory.unbroken(len(self._kept) - 1)
        return context.cells if unbroken is None else max(unbroken, self._padded[0])

    def _feed_again(self) -> None:
        while len(self.slot.tokens) < len(self._kept) - 1:
            self.slot.feed_block(self._kept.tokens, len(self._kept) - 1)

    def _forward(self, tokens: list[int], width: int) -> None:
        if width == 1:
            self.slot.context.step(tokens[0])
        else:
            self.slot.context.forward(tokens, width)

    def commit(self, tokens: Sequence[int]) -> Ack:
        """Take the picks, all of them and in order, into history; cuts exactly the rejected cells and the padding."""
        self._expect(SessionState.VERIFIED)
        picks = self.rows.picks if self.rows else []
        if not picks or picks != list(tokens):
            raise ProtocolViolation(f"commit of {list(tokens)}, but the picks of this round are {picks}")
        if not self._guarded(lambda: self.slot.keep([self.history.tokens[-1], *picks[:-1]])):
            self.rows = None
        self.state = SessionState.READY
        return self.history.commit(picks)

    def rollback(self) -> Ack:
        """Forget the last forward and its picks, the sampler's draws included. Nothing verified: nothing to forget."""
        self._expect(SessionState.PREFILLING, SessionState.READY, SessionState.VERIFIED)
        if self.state is SessionState.VERIFIED:
            self._guarded(lambda: self.slot.trim(len(self._kept) - 1))
            if self.rows and self.rows.picks:
                tokens, n = self.history.tokens, self._prompt_length
                self._sampler.rewind(self._draws, tokens[:n], tokens[n:])
            self.rows = None
            self.state = SessionState.READY
        return self.history.ack()

    @property
    def can_shift(self) -> bool:
        """Whether a full context may forget, as far as the library knows how to."""
        return self.slot.context.can_shift

    def shift(self, keep: int, discard: int) -> None:
        """Forget `discard` ids behind the first `keep`; see the module's account. Raises EngineError."""
        self._expect(SessionState.READY)
        if not 0 <= keep < keep + discard < len(self._kept):
            raise ProtocolViolation(f"{discard} ids behind {keep} cannot go; the cells hold {len(self._kept) - 1}")
        self._kept.forget(keep, discard)
        if not self._guarded(lambda: shift(self.slot, keep, discard)):
            self.state = SessionState.PREFILLING

    def close(self) -> None:
        """Free the slot; its cells stay for a later prompt with the same prefix. A second call does nothing."""
        if self.state is SessionState.CLOSED:
            return
        if self._kept.forgotten:
            self.slot.clear()
        elif self.state is SessionState.VERIFIED:
            self.slot.trim(len(self._kept) - 1)
        self.slot.settle()
        self.state = SessionState.CLOSED
        self.rows = None
        self._sampler.close()
        self._on_close()

    def draw(self, i: int) -> int:
        """Row i's token by the request's sampler; for the rows."""
        return self._sampler.sample(i)

    def logprob(self, i: int, token: int, n: int) -> TokenLogprob:
        """Row i's log-probabilities; for the rows."""
        return token_logprob(self.slot.context.row(i), token, n, self._tokenizer)

    def _expect(self, *states: SessionState) -> None:
        if self.state not in states:
            wanted = " or ".join(state.value for state in states)
            raise ProtocolViolation(f"the target session is {self.state.value}; this call needs it {wanted}")

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except EngineError:
            self.fail()
            raise


class CellRows:
    """The rows of one forward. Picks need the session still at this forward; log-probabilities outlive the commit,
    unless that had to forward tokens again."""

    __slots__ = ("_proposals", "_session", "picks")

    def __init__(self, session: CellSession, proposals: list[int]) -> None:
        self._session = session
        self._proposals = proposals
        self.picks: list[int] = []

    def __len__(self) -> int:
        return len(self._proposals) + 1

    def pick(self, i: int) -> int:
        """Draw row i's token. Raises ProtocolViolation out of order or past a pick that differs."""
        picks = self.picks
        self._current(i)
        if self._session.state is not SessionState.VERIFIED or i != len(picks):
            raise ProtocolViolation(f"row {i} cannot be picked now; rows are picked once, in order, before the commit")
        if i and picks[-1] != self._proposals[i - 1]:
            raise ProtocolViolation(f"row {i} follows a rejected proposal; commit {picks}")
        token = self._session.draw(i)
        picks.append(token)
        return token

    def logprobs(self, i: int, token: int, n: int) -> TokenLogprob:
        """Row i before sampling: `token` and the `n` most probable tokens. Readable until the next forward."""
        self._current(i)
        return self._session.logprob(i, token, n)

    def _current(self, i: int) -> None:
        if self._session.rows is not self:
            raise ProtocolViolation("these rows belong to an earlier forward; use the ones that verify returned last")
        if not 0 <= i < len(self):
            raise ProtocolViolation(f"there is no row {i}; this forward has {len(self)}")
