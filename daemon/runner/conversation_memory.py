"""How much host memory the conversations of a loaded model may take beside its slots, and how much of a disk."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from pilotfish.hooks.errors import PilotfishError
from pilotfish.hooks.protocols import KeepsConversations, RemembersConversations, TargetEngine
from pilotfish.hooks.types import ConversationTotals

log = logging.getLogger("pilotfish.runner")

FOLDER = "conversations"  # in the state folder


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


def keep_conversations(engine: TargetEngine, limit: int, state_dir: Path) -> None:
    """Have `engine` keep them on disk, if it can, in at most `limit` bytes; of 0, nothing that was kept is left."""
    folder = state_dir / FOLDER
    if limit and isinstance(engine, KeepsConversations):
        engine.keep_conversations(folder, limit)
    elif not limit and folder.is_dir():
        log.info("%s is removed: the config keeps no conversations on disk", folder)
        shutil.rmtree(folder, ignore_errors=True)


def keep_at_rest(engine: TargetEngine) -> None:
    """Nobody has asked for anything for a while. On the engine's thread; raises nothing."""
    if isinstance(engine, KeepsConversations):
        try:
            engine.rest()
        except Exception:
            log.exception("conversations are not kept")


def remembered_by(engine: TargetEngine) -> ConversationTotals:
    """How that stands; safe from any thread."""
    if isinstance(engine, RemembersConversations):
        return engine.remembered
    return ConversationTotals(obstacle="this engine keeps what its slot holds, and nothing beside it")
