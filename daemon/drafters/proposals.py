"""From a drafter's proposal to ids that the target can verify, and the count of those that came to nothing."""

from __future__ import annotations

from pilotfish.hooks.proposals import checked
from pilotfish.hooks.protocols import Bridge, DraftSession
from pilotfish.hooks.types import Proposal


def translated(session: DraftSession, bridge: Bridge, asked: int, *, of: int, into: int) -> Proposal:
    """What `session` proposes when asked for `asked` of its own ids, in the target's ids.

    `of` is the size of the drafter's vocabulary, `into` that of the target's; both sides' answers are checked. Raises
    ProtocolViolation, and whatever the drafter or the bridge raises.
    """
    given = checked(session.propose(asked), of, asked)
    found = bridge.to_target(given)
    return given if found is given and of <= into else checked(found, into)  # equal vocabularies hand it through


class Refusals:
    """How many of a drafter's proposals were refused, over all requests, and why the last one was.

    Written by the thread that asks the drafter, read by any.
    """

    def __init__(self) -> None:
        self._count_and_last = (0, "")  # replaced as a whole, so that no reader sees half a change

    @property
    def count(self) -> int:
        """Proposals that raised or were not sound."""
        return self._count_and_last[0]

    def add(self, why: str) -> None:
        """One more."""
        self._count_and_last = (self.count + 1, why)

    def __str__(self) -> str:
        """One line for a person; empty while there was none."""
        count, last = self._count_and_last
        if count == 0:
            return ""
        return f"{count} proposal{'s' if count > 1 else ''} refused, the last: {last}"
