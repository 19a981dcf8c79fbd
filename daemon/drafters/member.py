"""One drafter of a pool: where it stands, what it says of itself, and how it gives back what it holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from pilotfish.daemon.drafters.guard import Guard
from pilotfish.daemon.drafters.proposals import Refusals
from pilotfish.daemon.drafters.worker import DrafterWorker
from pilotfish.daemon.registry.containment import one_line, where
from pilotfish.hooks.declared import sessions_of
from pilotfish.hooks.protocols import Drafter, LoadableDrafter, MayEnd, TellsStatus
from pilotfish.hooks.types import Footprint

FIRST_RETRY, LAST_RETRY = 5.0, 300.0  # seconds after a load that failed


class DrafterState(StrEnum):
    """Where a drafter of a pool stands; see the pool's docstring. The values are those of `pilotfish status`."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    REFUSED = "refused"
    UNLOADED = "unloaded"

    @property
    def may_load(self) -> bool:
        """Whether it holds nothing and may be loaded when its time has come."""
        return self in (DrafterState.FAILED, DrafterState.REFUSED, DrafterState.UNLOADED)


@dataclass(slots=True)
class Member:
    """A drafter as the registry built it, as it is used, and what became of it. Changed by its pool."""

    built: Drafter
    drafter: Drafter  # `built`, or what runs it in a process of its own
    worker: DrafterWorker
    state: DrafterState = DrafterState.READY
    trouble: str = ""
    retry_at: float = 0.0
    retry_after: float = FIRST_RETRY
    footprint: Footprint | None = None  # of what is loaded
    refusals: Refusals = field(default_factory=Refusals)
    seats: list[Guard] = field(default_factory=list)  # those that requests hold
    loads: bool = field(init=False)

    def __post_init__(self) -> None:
        self.loads = isinstance(self.drafter, LoadableDrafter)

    @property
    def gone(self) -> bool:
        """Whether what was loaded ended by itself, as a process can."""
        return self.state is DrafterState.READY and isinstance(self.drafter, MayEnd) and not self.drafter.alive

    def has_seat(self) -> bool:
        """Whether it can have another session: most serve one request at a time."""
        self.seats = [guard for guard in self.seats if not guard.closed]
        return len(self.seats) < sessions_of(self.drafter)

    def postpone(self, now: float) -> None:
        """Have it loaded again later, each time twice as late."""
        self.retry_at = now + self.retry_after
        self.retry_after = min(2 * self.retry_after, LAST_RETRY)

    def about(self) -> str:
        """What is wrong with it, else what the drafter says of itself; and how many of its proposals were refused."""
        return "; ".join(part for part in (self.trouble or _word(self.drafter), str(self.refusals)) if part)

    def free(self) -> str:
        """Have it give back what it holds; what it raised, if it did. On its thread."""
        if not isinstance(self.drafter, LoadableDrafter):
            return ""
        try:
            self.drafter.unload()
        except BaseException as error:
            return f"unload raised {where(error)}"
        return ""


def _word(drafter: Drafter) -> str:
    try:
        return one_line(str(drafter.status())) if isinstance(drafter, TellsStatus) else ""
    except BaseException as error:
        return f"status raised {where(error)}"
