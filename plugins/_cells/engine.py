"""A loaded target model with one slot."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from pilotfish.hooks.errors import ContextOverflow, ProtocolViolation, RequestError
from pilotfish.hooks.protocols import Tokenizer
from pilotfish.hooks.types import ConversationTotals, EnginePin, Lane, SamplingParams
from pilotfish.plugins._cells.context import CellContext
from pilotfish.plugins._cells.conversations import Conversations
from pilotfish.plugins._cells.dialect import Model
from pilotfish.plugins._cells.session import CellSession
from pilotfish.plugins._cells.slot import CellSlot


class CellEngine:
    """A `TargetEngine` that `RemembersConversations`. It owns the model and its context; `close` frees both.

    `can_rollback` is False for models whose cache cannot give up its last cells: they decode plainly.
    `exact_cache` says that an earlier request's prefix may be kept wherever it ends.
    """

    def __init__(self, model: Model, context: CellContext, lane: Lane, engine: EnginePin, slot: CellSlot) -> None:
        self._model, self._context, self._slot = model, context, slot
        self._conversations: Conversations | None = None
        self.session: CellSession | None = None
        self.lane = lane
        self.engine = engine
        self.tokenizer: Tokenizer = model.tokenizer
        self.n_vocab = model.tokenizer.n_vocab
        # as llama-server's slot: the cells there are, never more than the model was trained for; a padded lane
        # needs room for the padding of its last forward
        self.n_ctx: int = min(context.cells - lane.widths[0] + 1, model.n_ctx_train)
        self.eog = model.tokenizer.end_tokens()
        self.can_rollback = slot.can_rollback
        self.exact_cache = slot.exact

    def open(self, prompt: Sequence[int], sampling: SamplingParams, *, cache_prompt: bool = True) -> CellSession:
        """Start a session on `prompt`.

        Raises RequestError (an empty prompt, ids outside the vocabulary, options or a grammar that cannot be
        followed), ContextOverflow from `n_ctx` tokens on, as llama-server, and ProtocolViolation while another
        session is open.
        """
        if self.session is not None:
            raise ProtocolViolation("the engine has one slot and a session is open in it; close that one first")
        ids = self._checked(prompt)
        sampler = self._model.sampler(self._context, sampling, ids, self.eog)
        self._prepare_slot(ids, cache_prompt)
        self.session = CellSession(self._slot, ids, sampler, self.lane, self._model.tokenizer, self._release)
        return self.session

    def _prepare_slot(self, prompt: array[int], cache_prompt: bool) -> None:
        if self._conversations is not None and cache_prompt:
            self._conversations.hand_over(self._slot, prompt)
        elif self._conversations is not None:
            self._conversations.put_aside(self._slot)
        if not cache_prompt:
            self._slot.clear()

    def remember(self, room: Callable[[int], int]) -> None:
        """Keep in host memory what the slot gives up, unless its cells cannot be cut back to what prompts share."""
        if self.can_rollback:
            self._conversations = Conversations(room)

    @property
    def remembered(self) -> ConversationTotals:
        """How many conversations are kept, and what became of others."""
        if self._conversations is not None:
            return self._conversations.summary
        return ConversationTotals(obstacle="no more was asked for" if self.can_rollback else self.lane.reason)

    def _checked(self, prompt: Sequence[int]) -> array[int]:
        try:
            ids = array("i", prompt)
        except (TypeError, OverflowError) as error:
            raise RequestError(f"the prompt contains invalid tokens: {error}; send token ids") from error
        if not ids:
            raise RequestError("the prompt is empty; send at least one token")
        if min(ids) < 0 or max(ids) >= self.n_vocab:
            wrong = next(id for id in ids if not 0 <= id < self.n_vocab)
            raise RequestError(f"the prompt contains invalid tokens: {wrong} is not one of {self.n_vocab}")
        if len(ids) >= self.n_ctx:
            raise ContextOverflow(len(ids), self.n_ctx)
        return ids

    def _release(self) -> None:
        self.session = None

    def close(self) -> None:
        """Free the model; closes the open session, if any. A second call does nothing."""
        if self.session is not None:
            self.session.close()
        self._context.close()
        self._model.close()
