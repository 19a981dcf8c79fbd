"""What a loaded target model may be able to do besides. `pilotfish.hooks.protocols` has the whole contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from pilotfish.hooks.target import Rows, TargetEngine, TargetSession
from pilotfish.hooks.types import ConversationTotals, SamplingParams


@runtime_checkable
class SlotSession(TargetSession, Protocol):
    """A session of an engine with slots."""

    @property
    def slot_id(self) -> int:
        """Which one it has: from 0 to `slots` - 1."""
        ...


@runtime_checkable
class HasSlots(TargetEngine, Protocol):
    """An engine that keeps as many sessions open at once as it has slots. What one does changes no other's rows."""

    @property
    def slots(self) -> int:
        """How many; at least one."""
        ...

    def open(
        self, prompt: Sequence[int], sampling: SamplingParams, *, cache_prompt: bool = True, slot: int | None = None
    ) -> SlotSession:
        """As `TargetEngine.open`, in `slot`, which must be free, or in the free one that suits the prompt best."""
        ...


@runtime_checkable
class VerifiesTogether(HasSlots, Protocol):
    """An engine that can forward several sessions at once. One that is not forwards them one after the other."""

    def together(self, width: int) -> int:
        """How many sessions may forward `width` tokens each at once, `width` being one of the lane's: their rows were
        shown to be those that each has alone. 1 where that was not shown for any two.
        """
        ...

    def verify_together(self, wishes: Sequence[tuple[TargetSession, Sequence[int]]]) -> Sequence[Rows]:
        """One forward of `[pending] + proposals` of every session, as `verify`, all padded to the widest of them.

        Each session must be committed or rolled back afterwards. Raises EngineError: then all of them have failed.
        """
        ...


@runtime_checkable
class RestoresStates(Protocol):
    """An engine, or a probe, some of whose models keep a memory that cannot be cut.

    The state is copied before a block, which is part of what a forward of more than one token takes. If less than the
    block is committed, the commit writes the copy back and forwards the committed tokens again, in the lane's widths.
    """

    @property
    def going_back(self) -> float | None:
        """Seconds that writing the copy back takes at least; None for a model whose rejected tokens are cut."""
        ...


@runtime_checkable
class RemembersConversations(Protocol):
    """An engine that can keep in host memory what its slots give up, and write it back when it comes up again.

    No answer depends on what it keeps. One that is only a `TargetEngine` keeps what its slots hold.
    """

    def remember(self, room: Callable[[int], int]) -> None:
        """Begin to. `room(held)` says how many bytes may be held in all while `held` are; asked for every request."""
        ...

    @property
    def remembered(self) -> ConversationTotals:
        """How that stands; safe from any thread."""
        ...


@runtime_checkable
class KeepsConversations(RemembersConversations, Protocol):
    """An engine that can keep them on disk as well, for later loads of the same model, build and setting."""

    def keep_conversations(self, folder: Path, limit: int) -> None:
        """Begin to, with those that `folder` holds already. The files of all models in it have `limit` bytes at most.

        Asked once, after `remember` and `read_prompts_fast`, if these are. `close` writes what is not written yet.
        """
        ...

    def rest(self) -> None:
        """Nobody has asked for anything for a while: write what would be lost with the process."""
        ...


@runtime_checkable
class ReadsPromptsFast(Protocol):
    """An engine that reads prompts faster where answers may depend on what was asked before, as stock's do.

    It then keeps whatever prefix a prompt shares with earlier ones and their answers, and may read long prompts in
    another setting than its lane's. Cells are the same with speculation on and off for equal histories of requests;
    otherwise they are the same whatever was asked before.
    """

    def read_prompts_fast(self, free: Callable[[], int]) -> None:
        """Begin to, where it can. `free()` says how many bytes of memory there are; how long the prompts are that are
        read elsewhere is decided once, by the first of them."""
        ...

    @property
    def prompts_read(self) -> str:
        """Where long prompts are read, and why, for a person; safe from any thread."""
        ...


@runtime_checkable
class SpansMachines(Protocol):
    """An engine that may have layers computed on other machines. Where one of those is lost, the process is, too."""

    @property
    def far_ends(self) -> tuple[str, ...]:
        """Where they are reached, as host:port; none where all is computed here."""
        ...

    def gone(self) -> tuple[str, ...]:
        """Those of them to which there is no connection any more: the next forward would end the process."""
        ...

    def when_lost(self, call: Callable[[str], None]) -> None:
        """Have `call` told why nothing is computed any more: from a thread of the engine's, and the process ends when
        it returns."""
        ...


@runtime_checkable
class TellsCosts(Protocol):
    """An engine that timed forwards while it loaded, for whom the first ones of a width take longer than all others."""

    @property
    def costs(self) -> tuple[tuple[int, int, float], ...]:
        """(width, position, seconds), the plain step's among them; none where the first are like any."""
        ...
