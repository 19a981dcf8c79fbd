"""Conversations as files: what is read is what was written, or nothing, and never more bytes than allowed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from pilotfish.plugins._cells.cell_history import CellHistory
from pilotfish.plugins._cells.context import CellState
from pilotfish.plugins._cells.conversation_files import ConversationFiles, KeptFile, UnreadableFile

MIB = 1 << 20
BLOCK = 4


def files_in(
    folder: Path, identity: str = "this model", limit: int = 64 * MIB, *, any_prefix: bool = True
) -> ConversationFiles:
    return ConversationFiles(folder, identity, limit, block=BLOCK, any_prefix=any_prefix)


def history_of(*ids: int, decoded: int = 0, any_prefix: bool = True) -> CellHistory:
    """Ids of which all but the last `decoded` were fed in prompt blocks."""
    history = CellHistory(BLOCK, any_prefix=any_prefix)
    fed = ids[: len(ids) - decoded]
    for at in range(0, len(fed), BLOCK):
        history.add_block(fed[at : at + BLOCK])
    history.add(ids[len(fed) :])
    return history


def state_of(history: CellHistory, size: int = 1000) -> CellState:
    return CellState(len(history), np.random.default_rng(len(history)).integers(0, 256, size, dtype=np.uint8))


def kept(files: ConversationFiles, *ids: int, size: int = 1000) -> KeptFile:
    history = history_of(*ids)
    return files.write(history, state_of(history, size))


def ids_of(found: list[KeptFile]) -> list[list[int]]:
    return [list(one.history.tokens) for one in found]


@pytest.mark.parametrize("any_prefix", [True, False])
def test_what_was_written_is_found_by_a_later_process_and_read_bit_by_bit(tmp_path: Path, any_prefix: bool) -> None:
    history = history_of(*range(10), decoded=1, any_prefix=any_prefix)
    state = state_of(history)
    files_in(tmp_path / "kept", any_prefix=any_prefix).write(history, state)
    later = files_in(tmp_path / "kept", any_prefix=any_prefix)
    (found,) = later.found()
    assert found.history.tokens == history.tokens
    assert found.history.trusted == history.trusted == (10 if any_prefix else 9)
    assert [found.history.reusable(prompt) for prompt in ([*range(10), 7], [0, 1, 2, 3, 4, 9, 9])] == [
        history.reusable(prompt) for prompt in ([*range(10), 7], [0, 1, 2, 3, 4, 9, 9])
    ]
    again = later.read(found)
    assert again.cells == 10
    assert np.array_equal(again.data, state.data)


def test_nobody_else_may_read_it_and_nothing_unfinished_is_left(tmp_path: Path) -> None:
    one = kept(files_in(tmp_path / "kept"), 1, 2, 3)
    assert stat.S_IMODE(one.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(one.path.parent.stat().st_mode) == 0o700
    assert [path.name for path in one.path.parent.iterdir()] == [one.path.name]
    assert one.size == one.path.stat().st_size


def test_another_models_builds_or_settings_files_are_not_found_and_stay(tmp_path: Path) -> None:
    kept(files_in(tmp_path, "that model"), 1, 2, 3)
    assert files_in(tmp_path).found() == []
    assert len(files_in(tmp_path, "that model").found()) == 1


def test_a_file_that_took_the_name_of_another_identity_is_refused(tmp_path: Path) -> None:
    theirs = kept(files_in(tmp_path, "that model"), 1, 2, 3)
    mine = kept(files_in(tmp_path), 4, 5, 6)
    theirs.path.replace(mine.path)
    assert files_in(tmp_path).found() == []


def test_the_same_conversation_has_one_file(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    kept(files, 1, 2, 3)
    kept(files, 1, 2, 3)
    assert ids_of(files.found()) == [[1, 2, 3]]


def test_what_was_used_least_recently_goes_first(tmp_path: Path) -> None:
    files = files_in(tmp_path, limit=4500)
    old, older, new = kept(files, 1, 1), kept(files, 2, 2), kept(files, 3, 3)
    for age, one in ((300, older), (200, old), (100, new)):
        os.utime(one.path, (1e9 - age, 1e9 - age))
    files.used(older)
    kept(files, 4, 4, size=2500)
    assert ids_of(files.found()) == [[2, 2], [4, 4]]


def test_the_limit_is_for_all_models_together(tmp_path: Path) -> None:
    theirs = kept(files_in(tmp_path, "that model", 4000), 1, 2)
    os.utime(theirs.path, (1, 1))
    kept(files_in(tmp_path, limit=2000), 3, 4)
    assert files_in(tmp_path, "that model").found() == []


def test_a_smaller_limit_holds_from_the_next_load_on(tmp_path: Path) -> None:
    kept(files_in(tmp_path), 1, 2)
    assert files_in(tmp_path, limit=100).found() == []
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_larger_than_the_limit_takes_no_other_with_it(tmp_path: Path) -> None:
    files = files_in(tmp_path, limit=3000)
    kept(files, 1, 2)
    with pytest.raises(UnreadableFile, match="no room"):
        kept(files, 3, 4, size=5000)
    assert ids_of(files.found()) == [[1, 2]]


def readable(files: ConversationFiles, one: KeptFile) -> bool:
    try:
        return bool(files.read(one))
    except UnreadableFile:
        return False


@pytest.mark.parametrize("at", [0, 20, 50, 60, -1500, -1])
def test_a_broken_byte_anywhere_is_noticed_before_the_library_sees_it(tmp_path: Path, at: int) -> None:
    files = files_in(tmp_path)
    one = kept(files, *range(50), size=1400)
    data = bytearray(one.path.read_bytes())
    data[at] ^= 0x40
    one.path.write_bytes(data)
    assert all(not readable(files, found) for found in files.found())  # what the head shows is not even found


@pytest.mark.parametrize("size", [0, 10, 40, 60, 300])
def test_a_file_that_was_cut_short_costs_a_line_in_the_log(
    tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    files = files_in(tmp_path)
    one = kept(files, *range(50))
    os.truncate(one.path, size)
    good = kept(files, 7, 8, 9)
    found = [kept for kept in files.found() if kept.path == good.path]
    assert ids_of(found) == [[7, 8, 9]]
    assert size >= 300 or ("is not used, and removed" in caplog.text and not one.path.exists())


def test_a_head_that_is_no_head_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    one = kept(files, 1, 2, 3)
    data = bytearray(one.path.read_bytes())
    data[48:52] = b"\xff\xff\xff\x7f"
    one.path.write_bytes(data)
    assert files.found() == []


def test_one_that_was_replaced_by_another_conversation_is_not_taken_for_it(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    one, other = kept(files, 1, 2, 3), kept(files, 1, 2, 4)
    other.path.replace(one.path)
    with pytest.raises(UnreadableFile, match="another conversation"):
        files.read(one)


def test_what_a_killed_process_left_unfinished_goes_when_it_is_old(tmp_path: Path) -> None:
    fresh, old = tmp_path / ".unfinished-1", tmp_path / ".unfinished-2"
    for path in (fresh, old):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    files_in(tmp_path).found()
    assert (fresh.exists(), old.exists()) == (True, False)
