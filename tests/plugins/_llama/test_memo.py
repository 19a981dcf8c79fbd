"""What was worked out once is remembered; what cannot be read or written is worked out again."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from pilotfish.plugins._llama.memo import LIMIT, Memo

NAME = "memo.json"


def test_what_was_put_is_there_for_the_next_process(tmp_path: Path) -> None:
    Memo(tmp_path / "state", NAME).put("a", [1, 2])
    assert Memo(tmp_path / "state", NAME).get("a") == [1, 2]
    assert Memo(tmp_path / "state", NAME).get("b") is None


def test_the_oldest_go_first(tmp_path: Path) -> None:
    memo = Memo(tmp_path, NAME)
    for i in range(LIMIT + 5):
        memo.put(str(i), i)
    assert [memo.get(str(i)) for i in (4, 5, LIMIT + 4)] == [None, 5, LIMIT + 4]


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"5", b"\xff\xfe", b"[" * 100_000, b'{"a": 1' + b"0" * 5000 + b"}"]
)
def test_a_damaged_file_is_an_empty_one(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / NAME).write_bytes(damage)
    memo = Memo(tmp_path, NAME)
    assert memo.get("a") is None
    memo.put("a", 1)
    assert memo.get("a") == 1


def test_a_folder_that_cannot_be_written_costs_the_memory_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "file").touch()
    Memo(tmp_path / "file", NAME).put("a", 1)
    assert Memo(tmp_path / "file", NAME).get("a") is None
    monkeypatch.setattr(os, "fdopen", full)
    Memo(tmp_path, NAME).put("a", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
