"""How much memory conversations are given, which engine is asked to keep any, and where that is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine
from pilotfish.daemon.runner.conversation_memory import (
    ConversationRoom,
    keep_conversations,
    remember_conversations,
    remembered_by,
)
from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.types import ConversationTotals
from tests.daemon.runner.scripted import ScriptedGenerator, serving

GB = 1 << 30


class RemembersAll(FakeEngine):
    """A fake engine that takes the room it is given."""

    room: Callable[[int], int] | None = None

    def remember(self, room: Callable[[int], int]) -> None:
        self.room = room

    @property
    def remembered(self) -> ConversationTotals:
        return ConversationTotals(entries=2, bytes=300, room=1000, hits=5, disk_entries=3, disk_room=9000)


@pytest.mark.parametrize(
    ("limit", "share", "free", "held", "room"),
    [
        (8 * GB, 0.5, 64 * GB, 0, 8 * GB),
        (8 * GB, 0.5, 4 * GB, 0, 2 * GB),
        (8 * GB, 0.5, 3 * GB, GB, 2 * GB),  # what is held was free before
        (None, 0.5, 64 * GB, 0, 32 * GB),
        (None, 1.0, 64 * GB, 0, 64 * GB),
    ],
)
def test_the_room_is_the_limit_or_the_share_of_what_is_free(
    limit: int | None, share: float, free: int, held: int, room: int
) -> None:
    assert ConversationRoom(limit, share, lambda: free)(held) == room


def test_there_is_no_room_where_nothing_can_be_found_out() -> None:
    def free() -> int:
        raise BrokenModel("cut short")

    assert ConversationRoom(None, 0.5, free)(5) == 0


@pytest.mark.parametrize(
    ("limit", "share", "asked"), [(GB, 0.5, True), (None, 0.5, True), (0, 0.5, False), (GB, 0, False)]
)
def test_an_engine_is_asked_to_remember_unless_the_launch_or_the_config_says_no(
    limit: int | None, share: float, asked: bool
) -> None:
    engine = RemembersAll()
    remember_conversations(engine, limit, share, lambda: 8 * GB)
    assert (engine.room is not None) == asked


def test_an_engine_that_cannot_is_left_alone_and_that_is_said() -> None:
    engine = FakeEngine()
    remember_conversations(engine, GB, 0.5, lambda: 8 * GB)
    assert remembered_by(engine).obstacle


class KeepsAll(RemembersAll):
    """And one that keeps them on disk."""

    kept: tuple[Path, int] | None = None

    def keep_conversations(self, folder: Path, limit: int) -> None:
        self.kept = folder, limit

    def rest(self) -> None:
        """Nothing to write."""


def test_conversations_are_kept_on_disk_where_the_config_says_so(tmp_path: Path) -> None:
    engine = KeepsAll()
    keep_conversations(engine, 5 * GB, tmp_path)
    assert engine.kept == (tmp_path / "conversations", 5 * GB)
    keep_conversations(FakeEngine(), 5 * GB, tmp_path)


def test_what_was_kept_is_removed_once_the_config_says_nothing_is(tmp_path: Path) -> None:
    engine, folder = KeepsAll(), tmp_path / "conversations"
    folder.mkdir()
    (folder / "said.cells").touch()
    keep_conversations(engine, 0, tmp_path)
    assert engine.kept is None
    assert not folder.exists()


async def test_the_metrics_count_them() -> None:
    async with serving(ScriptedGenerator(engine=RemembersAll())) as client:
        text = await (await client.get("/metrics")).text()
    for line in (
        "pilotfish_conversations 2.0",
        "pilotfish_conversation_bytes 300.0",
        "pilotfish_conversation_bytes_limit 1000.0",
        "pilotfish_conversation_hits_total 5.0",
        "pilotfish_conversations_on_disk 3.0",
        "pilotfish_conversation_disk_bytes_limit 9000.0",
    ):
        assert line in text.splitlines()
