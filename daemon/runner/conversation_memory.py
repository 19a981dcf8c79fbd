"""How much host memory the conversations of a loaded model may take beside its slots."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pilotfish.hooks.errors import PilotfishError
from pilotfish.hooks.protocols import RemembersConversations, TargetEngine
from pilotfish.hooks.types import ConversationTotals

log = logging.getLogger("pilotfish.runner")


class ConversationRoom:
    """What `RemembersConversations.remember` is given: at most `limit` bytes, and `share` of what is free.

    `free()` says how many bytes are free now. What conversations hold already counts as free for them. Where nothing
    can be found out, nothing may be held. The process that looks is the engine's own, once for every request.
    """

    def __init__(self, limit: int | None, share: float, free: Callable[[], int]) -> None:
        self._limit = limit
        self._share = share
        self._free = free

    def __call__(self, held: int) -> int:
        try:
            room = int(self._share * (self._free() + held))
        except (PilotfishError, OSError) as error:
            log.warning("no conversation is remembered: %s", error)
            return 0
        return room if self._limit is None else min(room, self._limit)


def remember_conversations(engine: TargetEngine, limit: int | None, share: float, free: Callable[[], int]) -> None:
    """Have `engine` remember conversations, if it can and there may be any."""
    if isinstance(engine, RemembersConversations) and limit != 0 and share > 0:
        engine.remember(ConversationRoom(limit, share, free))


def remembered_by(engine: TargetEngine) -> ConversationTotals:
    """How that stands; safe from any thread."""
    if isinstance(engine, RemembersConversations):
        return engine.remembered
    return ConversationTotals(obstacle="this engine keeps what its slot holds, and nothing beside it")
