"""Conversations in host memory: what a slot gives up goes there, and is written back when it comes up again.

The rules are those that llama-server documents for `--cache-ram`, as far as they can be told apart from outside: a
slot's content is put aside before a prompt that would keep less than half of it, or that another conversation serves
better; the least recently used go first; one that another begins with is not kept twice. Conversations are told apart
by their ids, all of them.

What memory gives up may go to disk (`ConversationDisk`), and so does, while nobody asks for anything and at the end,
what memory and slots hold: a process that is killed leaves behind what it had until its last rest.

A slot comes and goes: nothing here knows how many there are. What a state holds is decided by `CellHistory`, so what
is put aside, forgotten or written back changes no answer, only how much of a prompt has to be fed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import ConversationTotals
from pilotfish.plugins._cells.cell_history import CellHistory
from pilotfish.plugins._cells.conversation_disk import ConversationDisk, KeptConversation, ids_size
from pilotfish.plugins._cells.conversation_files import KeptFile
from pilotfish.plugins._cells.slot import CellSlot

log = logging.getLogger("pilotfish.verifiers")

MOST = 0.5  # of a conversation; a prompt that keeps less has another subject
COPIED_PER_TOKEN = 32  # cells that are copied in the time that feeding a token takes, and far more with larger models
READ_PER_TOKEN = 8  # cells that are read from a file and compared with their digest in that time
GROWN = 0.75  # of a conversation: while a file has more of it, a rest does not write it anew
CLOSING = 2.0  # seconds for what is written at the end

Room = Callable[[int], int]
"""(bytes held now) -> bytes that may be held in all"""


class Conversations:
    """The store. Used by the engine's thread; `summary` is safe from any.

    `room` is asked before a conversation is taken in and whenever a slot changes hands; what no longer fits goes.
    """

    def __init__(self, room: Room, disk: ConversationDisk | None = None) -> None:
        self.room, self._disk = room, disk
        self._entries: list[KeptConversation] = []  # the least recently used first
        self.summary = ConversationTotals()

    def hand_over(self, slot: CellSlot, prompt: Sequence[int]) -> None:
        """Before `slot` is used for `prompt`: put aside what it would lose, and write back what serves it better.

        Raises nothing: whatever fails leaves less of the prompt in the slot, which is then fed.
        """
        self._fit(0)
        found = self._better(prompt, slot.history.reusable(prompt))
        if found is not None or _loses(slot.history, prompt):
            self._take_in(slot, spared=found if isinstance(found, KeptConversation) else None)
        if isinstance(found, KeptFile):
            self._read_back(slot, found)
        elif found is not None:
            self._write_back(slot, found, prompt)
        self._sum_up()

    def put_aside(self, slot: CellSlot) -> None:
        """Before `slot` is cleared. Raises nothing."""
        self._fit(0)
        self._take_in(slot)
        self._sum_up()

    def rest(self, slots: Sequence[CellSlot]) -> None:
        """While nobody asks for anything: have the disk keep what `slots` and memory hold. Raises nothing."""
        self._keep(slots, GROWN)

    def close(self, slots: Sequence[CellSlot]) -> None:
        """The last rest. Raises nothing, whatever state an engine is in that ends."""
        try:
            self._keep(slots, 1.0)
        except Exception:
            log.exception("conversations are not kept")
        if self._disk is not None:
            self._disk.close(CLOSING)

    def _keep(self, slots: Sequence[CellSlot], enough: float) -> None:
        """Whatever the disk has less than `enough` of."""
        if self._disk is None:
            return
        for entry in self._entries:
            if self._disk.holds(entry.history) < enough * len(entry.history):
                self._disk.put(entry)
        for slot in slots:
            if slot.trim(slot.history.trusted) and self._disk.holds(slot.history) < enough * len(slot.history):
                try:
                    self._disk.put(KeptConversation(slot.history.copy(), slot.context.state()))
                except (EngineError, MemoryError) as error:
                    log.warning("%s: a conversation is not kept: %s", slot.context.name, error)
                    self._count(failed=1)
        self._sum_up()

    @property
    def _held(self) -> int:
        return sum(entry.size for entry in self._entries)

    def _better(self, prompt: Sequence[int], than: int) -> KeptConversation | KeptFile | None:
        """The one that saves the most of `prompt` from being fed: more than `than` tokens, and what copying costs."""
        best: KeptConversation | KeptFile | None = None
        most = float(than)
        known: list[KeptConversation | KeptFile] = [*self._entries]
        if self._disk is not None:
            known += [*self._disk.pending, *self._disk.kept]
        for entry in known:
            copied = READ_PER_TOKEN if isinstance(entry, KeptFile) else COPIED_PER_TOKEN
            saved = entry.history.reusable(prompt) - len(entry.history) / copied
            if saved > most:
                best, most = entry, saved
        return best

    def _take_in(self, slot: CellSlot, spared: KeptConversation | None = None) -> None:
        """Keep a copy of what later prompts may use of `slot`, unless it is here already."""
        if not slot.trim(slot.history.trusted):
            return
        history = slot.history
        for entry in self._entries:
            if entry.history.there(entry.history.shared(history.tokens)) == len(history):
                self._use(entry)
                return
        self._entries = [entry for entry in self._entries if entry is spared or not _begins(history, entry.history)]
        try:
            if not self._fit(slot.context.state_size() + ids_size(history), spared):
                self._count(refused=1)
                return
            self._entries.append(KeptConversation(history.copy(), slot.context.state()))
        except (EngineError, MemoryError) as error:
            log.warning("%s: a conversation is not remembered: %s", slot.context.name, error)
            self._count(failed=1)

    def _fit(self, size: int, spared: KeptConversation | None = None) -> bool:
        """Make room for `size` bytes beside `spared`; False, with nothing lost for it, where there is none."""
        room = self.room(self._held)
        self.summary = replace(self.summary, room=room)
        if size and size + (spared.size if spared else 0) > room:
            return False
        while self._held + size > room:
            oldest = next(entry for entry in self._entries if entry is not spared)
            self._remove(oldest)
            self._count(forgotten=1)
            if self._disk is not None and self._disk.holds(oldest.history) < len(oldest.history):
                self._disk.take_over(oldest)
        return True

    def _write_back(self, slot: CellSlot, found: KeptConversation, prompt: Sequence[int]) -> None:
        try:
            slot.restore(found.history, found.state)
        except EngineError as error:
            log.warning("%s", error)
            self._count(failed=1)
            self._remove(found)
            return
        self._count(hits=1)
        if found in self._entries and _loses(
            found.history, prompt
        ):  # the slot leaves it early: who comes back finds it
            self._use(found)
        else:
            self._remove(found)

    def _read_back(self, slot: CellSlot, found: KeptFile) -> None:
        """As `_write_back`, for one on disk, which stays there: this process may be killed."""
        assert self._disk is not None
        state = self._disk.read(found)
        try:
            if state is not None:
                slot.restore(found.history, state)
                self._count(hits=1, disk_hits=1)
        except EngineError as error:
            self._disk.lose(found, error)

    def _use(self, entry: KeptConversation) -> None:
        self._remove(entry)
        self._entries.append(entry)

    def _remove(self, entry: KeptConversation) -> None:
        if entry in self._entries:  # and not only on its way to the disk
            self._entries.remove(entry)

    def _count(self, **more: int) -> None:
        counted = {name: getattr(self.summary, name) + count for name, count in more.items()}
        self.summary = replace(self.summary, **counted)

    def _sum_up(self) -> None:
        self.summary = replace(self.summary, entries=len(self._entries), bytes=self._held)

    @property
    def totals(self) -> ConversationTotals:
        """How it stands; safe from any thread."""
        if self._disk is None:
            return self.summary
        disk = self._disk.totals
        return replace(
            self.summary,
            disk_entries=disk.files,
            disk_bytes=disk.bytes,
            disk_room=self._disk.limit,
            disk_failed=disk.failed,
        )


def _loses(history: CellHistory, prompt: Sequence[int]) -> bool:
    """Whether `prompt` keeps less than most of what could be kept."""
    trusted = history.trusted
    return history.there(min(history.shared(prompt), trusted)) < MOST * trusted


def _begins(longer: CellHistory, shorter: CellHistory) -> bool:
    return shorter.shared(longer.tokens) == len(shorter)
