"""Conversations that outlive the process that held them: what a later one finds, and what failures cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pilotfish.plugins._cells.conversation_disk import MOST_PENDING, ConversationDisk
from pilotfish.plugins._cells.conversation_files import ConversationFiles
from pilotfish.plugins._cells.conversations import Conversations
from pilotfish.plugins._cells.slot import CellSlot
from tests.plugins._cells.fake_cells import BLOCK, answer, slot, written
from tests.plugins._cells.test_conversations import APPLES, PEARS, PLENTY, ask
from tests.waiting import wait_until

Load = Callable[..., Conversations]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """A load of the same model, again and again; `room` is for host memory."""
    begun: list[Conversations] = []

    def loaded(room: int = PLENTY, *, exact: bool = True, limit: int = 1 << 30) -> Conversations:
        files = ConversationFiles(tmp_path / "kept", "a model", limit, block=BLOCK, any_prefix=exact)
        begun.append(Conversations(lambda held: room, ConversationDisk(files)))
        return begun[-1]

    yield loaded
    for conversations in begun:
        conversations.close([])


def test_what_slot_and_memory_held_at_the_end_is_there_after_the_next_load(load: Load) -> None:
    first, mine = load(), slot()
    ask(first, mine, APPLES, n=3)
    ask(first, mine, PEARS)
    first.close([mine])
    second, mine = load(), slot()
    assert ask(second, mine, [*APPLES, 900, 901, 5, 6]) == len(APPLES) + 2
    assert ask(second, mine, [*PEARS, 5]) == len(PEARS) - 1
    assert (second.totals.hits, second.totals.disk_hits, second.totals.disk_entries) == (2, 2, 2)


def test_after_a_rest_a_process_may_be_killed(load: Load) -> None:
    first, mine = load(), slot()
    ask(first, mine, APPLES)
    ask(first, mine, PEARS)
    first.rest([mine])
    wait_until(lambda: first.totals.disk_entries == 2)
    second, mine = load(), slot()  # the first one was not closed
    assert ask(second, mine, [*APPLES, 5]) == 15


def test_what_memory_gives_up_is_found_at_once_and_later(load: Load) -> None:
    first, mine = load(room=16 * 12 + 4), slot()
    for chat in (APPLES, PEARS, [1, *range(300, 315)], [1, *range(400, 415)]):
        ask(first, mine, chat)
    assert first.totals.forgotten >= 1
    assert ask(first, mine, [*APPLES, 5]) == 15


def test_however_many_there_are_at_the_end_all_are_written(load: Load) -> None:
    first, mine = load(), slot()
    for number in range(9):
        ask(first, mine, [number, *range(100 * number, 100 * number + 20)])
    first.close([mine])
    assert (first.totals.disk_entries, first.totals.disk_failed) == (9, 0)


def test_a_slow_disk_holds_no_more_memory_than_a_few_conversations(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    conversations, mine = load(room=20 * 12), slot()
    disk = conversations._disk
    assert disk is not None
    assert disk.kept == []
    monkeypatch.setattr(disk, "_write", lambda one: None)  # it never comes to it
    for number in range(9):
        ask(conversations, mine, [number, *range(100 * number, 100 * number + 16)])
    assert len(disk.pending) == MOST_PENDING
    assert conversations.totals.disk_failed == conversations.totals.forgotten - MOST_PENDING > 0


def test_a_chat_that_goes_on_is_written_anew_once_it_has_grown(load: Load) -> None:
    conversations, mine = load(), slot()
    chat = list(range(100, 140))
    ask(conversations, mine, chat)
    conversations.rest([mine])
    wait_until(lambda: conversations.totals.disk_entries == 1)
    size = conversations.totals.disk_bytes
    ask(conversations, mine, [*chat, 1, 2])
    conversations.rest([mine])
    assert conversations._disk is not None
    assert conversations._disk.pending == []  # most of it is there
    ask(conversations, mine, [*chat, *range(200, 240)])
    conversations.rest([mine])
    wait_until(lambda: conversations.totals.disk_bytes > size)
    assert conversations.totals.disk_entries == 1  # the shorter one is no more of use


def test_the_end_writes_what_is_new_however_little(load: Load) -> None:
    first, mine = load(), slot()
    chat = list(range(100, 140))
    ask(first, mine, chat)
    first.rest([mine])
    ask(first, mine, [*chat, 1, 2, 3])
    first.close([mine])
    second, mine = load(), slot()
    assert ask(second, mine, [*chat, 1, 2, 3, 4]) == len(chat) + 2


def test_a_file_that_broke_meanwhile_is_read_again_as_a_prompt(
    load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, mine = load(), slot()
    ask(first, mine, APPLES)
    first.close([mine])
    second, mine = load(), slot()
    wait_until(lambda: second.totals.disk_entries == 1)
    (path,) = (tmp_path / "kept").iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert ask(second, mine, APPLES) == 0
    assert [token for token, _ in written(mine)] == APPLES[:-1]
    assert (second.totals.disk_failed, second.totals.disk_entries, second.totals.disk_hits) == (1, 0, 0)
    assert "is not used, and removed" in caplog.text
    wait_until(lambda: not path.exists())


def test_a_state_that_the_library_refuses_is_not_offered_again(load: Load) -> None:
    first, mine = load(), slot()
    ask(first, mine, APPLES)
    first.close([mine])
    second, mine = load(), slot(broken="restore")
    assert ask(second, mine, APPLES) == 0
    assert second.totals.disk_failed == 1
    assert ask(second, slot(), APPLES) == 0


def test_a_folder_that_cannot_be_written_costs_a_line(
    load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kept").write_text("a file")
    conversations, mine = load(), slot()
    ask(conversations, mine, APPLES)
    conversations.rest([mine])
    wait_until(lambda: conversations.totals.disk_failed == 1)
    assert "not kept on disk" in caplog.text
    assert ask(conversations, mine, [*APPLES, 4]) == 15


def test_without_a_disk_a_rest_and_an_end_do_nothing() -> None:
    conversations, mine = Conversations(lambda held: PLENTY), slot()
    ask(conversations, mine, APPLES)
    conversations.rest([mine])
    conversations.close([mine])
    assert conversations.totals.disk_room == 0


@pytest.mark.parametrize("exact", [True, False])
def test_cells_that_were_on_disk_are_those_that_reading_writes(load: Load, exact: bool) -> None:
    """In a lane that is not exact a cell says how long the block was that wrote it."""

    def cells(mine: CellSlot) -> list[tuple[int, int]]:
        return [(token, 0) for token, _ in written(mine)] if exact else written(mine)

    first, mine = load(exact=exact), slot(exact=exact)
    ask(first, mine, APPLES, n=4)
    first.close([mine])
    again = [*APPLES[:13], 7, 8, 9]
    second, mine, alone = load(exact=exact), slot(exact=exact), slot(exact=exact)
    assert ask(second, mine, again) == (13 if exact else 12)
    answer(alone, again, 0)
    assert cells(mine) == cells(alone)
