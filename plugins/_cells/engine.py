"""A loaded target model with its slots."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

from pilotfish.hooks.errors import ContextOverflow, EngineError, ProtocolViolation, RequestError
from pilotfish.hooks.protocols import TargetSession, Tokenizer
from pilotfish.hooks.types import ConversationTotals, EnginePin, Lane, SamplingParams
from pilotfish.plugins._cells.conversation_disk import ConversationDisk
from pilotfish.plugins._cells.conversation_files import ConversationFiles
from pilotfish.plugins._cells.conversations import Conversations
from pilotfish.plugins._cells.dialect import Model
from pilotfish.plugins._cells.joint_check import Together
from pilotfish.plugins._cells.joint_forward import JointForward
from pilotfish.plugins._cells.prompt_reading import PromptReader
from pilotfish.plugins._cells.session import CellRows, CellSession
from pilotfish.plugins._cells.slot import CellSlot
from pilotfish.plugins._cells.slot_choice import choose
from pilotfish.plugins._cells.width_costs import Costs


class CellEngine:
    """A `TargetEngine` that `VerifiesTogether`, `KeepsConversations`, `RestoresStates`, `SpansMachines` and
    `TellsCosts`.

    It owns the model and its contexts.
    `can_rollback` is False for models whose memory leads back in no way: they decode plainly.
    `exact_cache` says that an earlier request's prefix may be kept wherever it ends.
    """

    def __init__(
        self,
        model: Model,
        lane: Lane,
        engine: EnginePin,
        slots: Sequence[CellSlot],
        *,
        joint: JointForward | None = None,
        together: Together | None = None,
        similarity: float = 0.0,
        identity: str = "",
        costs: Costs = (),
    ) -> None:
        """`together` says how many may share the forwards of `joint`; `similarity` is `EngineOptions.slot_similarity`;
        `identity` names all that decides what cells hold, and what their bytes mean; `costs` are those of `TellsCosts`.

        `close` frees all of it.
        """
        self._model, self._slots, self._joint, self._together = model, slots, joint, together or {}
        self._similarity, self._identity = similarity, identity
        self._resting = list(range(len(slots)))  # without a session; the one that has rested longest first
        self.sessions: list[CellSession] = []
        self._conversations: Conversations | None = None
        self._reader: PromptReader | None = None
        self.slots, self.costs = len(slots), costs
        self.lane = lane
        self.engine = engine
        self.tokenizer: Tokenizer = model.tokenizer
        self.n_vocab = model.tokenizer.n_vocab
        # as llama-server's slot: the cells there are, never more than the model was trained for; a padded lane
        # needs room for the padding of its last forward
        self.n_ctx: int = min(slots[0].context.cells - lane.widths[0] + 1, model.n_ctx_train)
        self.eog = model.tokenizer.end_tokens()
        self.can_rollback = slots[0].can_rollback
        self.exact_cache = slots[0].exact

    def open(
        self, prompt: Sequence[int], sampling: SamplingParams, *, cache_prompt: bool = True, slot: int | None = None
    ) -> CellSession:
        """Start a session on `prompt`, in `slot` or in a free one.

        Raises RequestError (an empty prompt, ids outside the vocabulary, options or a grammar that cannot be
        followed), ContextOverflow from `n_ctx` tokens on, as llama-server, and ProtocolViolation where there is no
        such slot, or a session is open in it.
        """
        free = [number for number in self._resting if slot in (number, None)]
        if not free:
            which = "every slot" if slot is None else f"slot {slot} of {self.slots}"
            raise ProtocolViolation(f"a session is open in {which}; close that one first")
        ids = self._checked(prompt)
        number = choose({number: self._slots[number].history for number in free}, ids, self._similarity)
        cells = self._slots[number]
        sampler = self._model.sampler(cells.context, sampling, ids, self.eog)
        self._prepare_slot(cells, ids, cache_prompt)
        session = CellSession(
            cells, number, ids, sampler, self.lane, self._model.tokenizer, lambda: self._release(session)
        )
        self._resting.remove(number)
        self.sessions.append(session)
        return session

    def together(self, width: int) -> int:
        """How many sessions may be in one forward of `width` tokens of each."""
        return self._together.get(width, 1)

    def verify_together(self, wishes: Sequence[tuple[TargetSession, Sequence[int]]]) -> list[CellRows]:
        """One forward of several sessions of this engine.

        Raises ProtocolViolation for more than may be `together`, and as `CellSession.verify`.
        """
        width = self._joint_width(wishes)
        if self._joint is None or len(wishes) > self.together(width):
            raise ProtocolViolation(f"{len(wishes)} sessions of {width} tokens in one forward; see `together`")
        prepared: list[tuple[CellSession, list[int]]] = []
        for session, proposals in wishes:
            if not isinstance(session, CellSession) or session not in self.sessions:
                raise ProtocolViolation("a session that is none of this engine's, or closed")
            prepared.append((session, session.prepare(proposals[: width - 1], width)))
        try:
            self._joint.run([(session.slot.context, tokens) for session, tokens in prepared], width)
        except EngineError:
            for session, _ in prepared:
                session.fail()
            raise
        return [session.forwarded(tokens) for session, tokens in prepared]

    def _joint_width(self, wishes: Sequence[tuple[TargetSession, Sequence[int]]]) -> int:
        """The lane's width for the longest of the proposals, or for the shortest room, if so many may have that."""
        width = self.lane.pad(max(1 + len(proposals) for _, proposals in wishes))
        rooms = [session.room for session, _ in wishes if isinstance(session, CellSession)]
        room = self.lane.fit(min(rooms, default=width))
        return room if room < width and len(wishes) <= self.together(room) else width

    def read_prompts_fast(self, free: Callable[[], int]) -> None:
        """Read no more of a prompt than what no slot holds, and long ones where this engine reads fastest.

        A prompt keeps whatever prefix it shares, cells of answers too, although reading it anew might write other last
        bits: answers depend on what was asked before, as stock's do. Reading elsewhere waits for `free()` bytes of
        memory; where a lane's cells depend on the block that wrote them, the lane reads.
        """
        if not self.can_rollback:
            return
        if self.exact_cache:
            self._reader = self._model.prompts_apart(self.lane.setting, free)
        for slot in self._slots:
            slot.history.any_prefix = True
            slot.reader = self._reader

    @property
    def going_back(self) -> float | None:
        """Seconds that taking a rejected block back takes at least; None where tails are cut, or nothing is drafted."""
        context = self._slots[0].context
        return context.going_back if context.memory.restores and self.lane.max_width > 1 else None

    @property
    def prompts_read(self) -> str:
        """Where long prompts are read, for a person; safe from any thread."""
        return "in the lane" if self._reader is None else self._reader.where

    @property
    def far_ends(self) -> tuple[str, ...]:
        """Other machines that compute layers of the model, as host:port."""
        return self._model.far_ends.endpoints if self._model.far_ends else ()

    def gone(self) -> tuple[str, ...]:
        """Those to which there is no connection any more. Safe from any thread."""
        return self._model.far_ends.gone() if self._model.far_ends else ()

    def when_lost(self, call: Callable[[str], None]) -> None:
        """Have `call` told, on another thread, why nothing is computed any more."""
        if self._model.far_ends:
            self._model.far_ends.when_lost(call)

    def _prepare_slot(self, slot: CellSlot, prompt: array[int], cache_prompt: bool) -> None:
        if self._conversations is not None and cache_prompt:
            self._conversations.hand_over(slot, prompt)
        elif self._conversations is not None:
            self._conversations.put_aside(slot)
        if not cache_prompt:
            slot.clear()

    def remember(self, room: Callable[[int], int]) -> None:
        """Keep in host memory what slots give up, unless its cells cannot be cut back to what prompts share."""
        if self.can_rollback:
            self._conversations = Conversations(room)

    def keep_conversations(self, folder: Path, limit: int) -> None:
        """Have `folder`, too, keep them; asked once, after how prompts are read was said."""
        if not self.can_rollback:
            return
        history = self._slots[0].history
        kind = f"{history.block} {history.any_prefix} {history.memory} {self._reader is not None}"
        files = ConversationFiles(folder, f"{self._identity} {kind}", limit, history)
        room = self._conversations.room if self._conversations else lambda held: 0
        self._conversations = Conversations(room, ConversationDisk(files))

    def rest(self) -> None:
        """Write to disk what slots without a session and host memory hold."""
        if self._conversations is not None:
            self._conversations.rest([self._slots[number] for number in self._resting])

    @property
    def remembered(self) -> ConversationTotals:
        """How many conversations are kept, and what became of others."""
        if self._conversations is not None:
            return self._conversations.totals
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

    def _release(self, session: CellSession) -> None:
        self.sessions.remove(session)
        self._resting.append(session.slot_id)

    def close(self) -> None:
        """Free the model; closes the sessions that are open. A second call does nothing."""
        for session in list(self.sessions):
            session.close()
        if self._conversations is not None:
            self._conversations.close(self._slots)
            self._conversations = None
        if self._joint is not None:
            self._joint.close()
            self._joint = None
        for slot in self._slots:
            slot.context.close()
        self._model.close()
