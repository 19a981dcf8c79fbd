"""What a drafter is. `pilotfish.hooks.protocols` has the whole contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pilotfish.hooks.bridge import Vocabulary
from pilotfish.hooks.types import Ack, EngineOptions, Footprint, Placement, Proposal, TargetPin


@runtime_checkable
class DraftSession(Protocol):
    """One drafter's view of one request."""

    def propose(self, k: int) -> Proposal:
        """At most `k` token ids that may come next. Empty means "not now". Must not change the history.

        What `pilotfish.hooks.proposals.checked` refuses is not used, and counted in `pilotfish status`.
        """
        ...

    def commit(self, tokens: Sequence[int]) -> Ack:
        """Take `tokens` into the history (they may differ from what was proposed) and acknowledge it."""
        ...

    def rollback(self) -> Ack:
        """Forget the last proposal, if any, and acknowledge the unchanged history."""
        ...

    def close(self) -> None:
        """Release what the session holds. Called once, also after an error."""
        ...


@runtime_checkable
class Drafter(Protocol):
    """Guesses tokens ahead of the target.

    `name` is the registry name. `placement` says where it computes, and must be a `Placement`:

    - INLINE promises that `propose` and `commit` return within a millisecond whatever the history's length; it is
      called on the engine's thread.
    - ENGINE_THREAD is for one that computes with the target's own engine library, which two threads of a process
      would slow down: its calls run on the engine's thread, and are waited for.
    - THREAD gives it a thread of its own, and it is waited for only as long as the account can pay.
    - PROCESS is THREAD in a process that pilotfish starts for it. Only of use for a `LoadableDrafter`; any other is
      used as with THREAD.
    - REMOTE computes on another machine, and is asked ahead while the target computes.

    One without a placement is not used, and the log says why. Neither is one whose `inline`, `hosted`, `elsewhere` or
    `engine_thread`, which pilotfish 0.1 read, say something else than its placement.
    """

    name: str
    placement: Placement

    def open(self, target: TargetPin, prompt: Sequence[int]) -> DraftSession:
        """Start a session whose history is `prompt` (ids in this drafter's vocabulary, round 0)."""
        ...


@runtime_checkable
class SpeaksVocabulary(Protocol):
    """A drafter that may have another vocabulary than the target. One that is none speaks the target's own ids."""

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Its own, known once it is loaded; None means the target's ids."""
        ...


@runtime_checkable
class ServesSessions(Protocol):
    """A drafter that can be used by several sessions at a time. Others serve one: a request that is answered beside
    that one's goes without.
    """

    @property
    def sessions(self) -> int:
        """How many sessions may be open at once; at least one."""
        ...


@runtime_checkable
class TellsStatus(Protocol):
    """A drafter with something to say of itself in `pilotfish status`."""

    def status(self) -> str:
        """One line for a person; empty for nothing. Asked by any thread."""
        ...


@runtime_checkable
class MayEnd(Protocol):
    """A drafter whose loaded state may be gone without `unload`, as a process may be. It is loaded again later."""

    @property
    def alive(self) -> bool:
        """Whether what `load` got is still there."""
        ...


class Host(Protocol):
    """What pilotfish does for a drafter that has something to load."""

    state_dir: Path  # where a drafter may keep files, in a folder of its own name

    def pin(self, model: str) -> TargetPin:
        """A model of the store by its name, or a .gguf file by its path. Raises ModelNotFound or BrokenModel."""
        ...

    def lease(self, device: str) -> AbstractContextManager[object]:
        """Hold a device that only one process may use, until the context ends. Raises DeviceBusy, naming the holder."""
        ...


@runtime_checkable
class LoadableDrafter(Drafter, SpeaksVocabulary, Protocol):
    """A drafter with weights or a connection, which it gets before the first session and gives back at the end.

    pilotfish asks for `footprint`, admits it or refuses it, and calls `load` on a thread of its own, so that no
    request waits for it; a load that raised is tried again later, at growing distances. `load` and `unload` may
    follow each other any number of times; sessions are only open in between.
    """

    def footprint(self, host: Host, target: TargetPin, options: EngineOptions) -> Footprint | None:
        """What `load` and one session will need on this machine, from metadata alone; None when that is nothing.

        `options` are the target's. Raises ModelNotFound, BrokenModel or ConfigError.
        """
        ...

    def load(self, host: Host, target: TargetPin, options: EngineOptions) -> None:
        """Get ready for sessions on `target`, warm-up included. Raises any PilotfishError, saying what to do."""
        ...

    def unload(self) -> None:
        """Free everything. Never raises; does nothing when nothing is loaded."""
        ...


class DrafterFactory(Protocol):
    """Builds a drafter from its own config table, e.g. `[drafters.suffix]`. Loads nothing yet."""

    def __call__(self, config: Mapping[str, Any], /) -> Drafter: ...
