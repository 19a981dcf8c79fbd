"""The memory's files: what survives a crash, damage, and other processes."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import subprocess
import sys
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.plugins.drafters._memory.config import MemoryConfig
from pilotfish.plugins.drafters._memory.files import ASIDE, SUFFIX, MemoryFiles, MemoryOwner
from pilotfish.plugins.drafters._memory.records import Passage, pack, unpack

WHO = MemoryOwner("tiny:1m", ("sha256:" + "a" * 64,), "tokenizer")


def files(root: Path, tokens: int = 1_000_000) -> MemoryFiles:
    return MemoryFiles(MemoryConfig("disk", tokens=tokens, folder=root), WHO)


def passage(n: int, length: int = 10, time: float | None = None) -> Passage:
    return Passage(2e9 + n if time is None else time, array("i", range(n, n + length)))


def numbers(root: Path) -> list[int]:
    return [found.tokens[0] for found in files(root).read()]


def segments(root: Path) -> list[Path]:
    return sorted(root.rglob(f"*{SUFFIX}"))


class TestRecords:
    @given(st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=30), max_size=5))
    def test_what_is_packed_is_unpacked(self, texts: list[list[int]]) -> None:
        passages = [Passage(float(i), array("i", text)) for i, text in enumerate(texts)]
        data = b"".join(map(pack, passages))
        found = unpack(data)
        assert list(found.passages) == passages
        assert (found.sound, found.damaged) == (len(data), 0)

    @given(cut=st.integers(0, 200))
    def test_a_torn_end_loses_the_last_record_only(self, cut: int) -> None:
        records = [pack(passage(n)) for n in range(5)]
        data = b"".join(records)
        whole = (len(data) - min(cut, len(data))) // len(records[0])
        found = unpack(data[: max(0, len(data) - cut)])
        assert len(found.passages) == whole
        assert (found.sound, found.damaged) == (whole * len(records[0]), 0)

    @given(at=st.integers(0, 299), bit=st.integers(0, 7))
    def test_a_flipped_bit_loses_the_record_it_is_in_only(self, at: int, bit: int) -> None:
        records = [pack(passage(n)) for n in range(5)]
        data = bytearray(b"".join(records))
        data[at] ^= 1 << bit
        found = [p.tokens[0] for p in unpack(bytes(data)).passages]
        assert found == [n for n in range(5) if n != at // len(records[0])]

    @given(st.binary(max_size=300))
    def test_any_bytes_can_be_read(self, data: bytes) -> None:
        assert unpack(data).sound <= len(data)


class TestDamage:
    def test_damaged_records_are_passed_over_with_a_line(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        writer = files(tmp_path)
        for n in range(5):
            writer.append(passage(n))
        (path,) = segments(tmp_path)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 255
        path.write_bytes(data)
        with caplog.at_level(logging.WARNING, "pilotfish.memory"):
            assert numbers(tmp_path) == [0, 1, 3, 4]
        assert str(path) in caplog.text

    def test_a_file_that_is_none_of_ours_is_kept_aside_with_a_line(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        files(tmp_path).append(passage(1))
        alien = segments(tmp_path)[0].with_name(f"9{SUFFIX}")
        alien.write_bytes(b"\0" * 1000)
        with caplog.at_level(logging.WARNING, "pilotfish.memory"):
            assert numbers(tmp_path) == [1]
        assert str(alien) in caplog.text
        assert alien.with_suffix(ASIDE).read_bytes() == b"\0" * 1000
        caplog.clear()
        assert numbers(tmp_path) == [1]
        assert caplog.text == ""

    def test_the_next_writer_cuts_a_torn_end_off(self, tmp_path: Path) -> None:
        files(tmp_path).append(passage(1))
        (path,) = segments(tmp_path)
        with path.open("ab") as file:
            file.write(pack(passage(2))[:-3])
        files(tmp_path).append(passage(3))
        assert segments(tmp_path) == [path]
        assert path.read_bytes() == pack(passage(1)) + pack(passage(3))

    def test_a_full_disk_leaves_no_torn_record(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        writer = files(tmp_path)
        writer.append(passage(1))
        write = os.write
        with monkeypatch.context() as full:
            full.setattr(os, "write", lambda fd, data: write(fd, data[:-5]))
            with pytest.raises(OSError, match="no room for a whole record"):
                writer.append(passage(2))
        writer.append(passage(3))
        assert numbers(tmp_path) == [1, 3]

    def test_a_file_removed_under_a_writer_is_begun_anew(self, tmp_path: Path) -> None:
        writer = files(tmp_path)
        writer.append(passage(1))
        segments(tmp_path)[0].unlink()
        writer.append(passage(2))
        assert numbers(tmp_path) == [2]
        assert not writer.cleared()

    def test_a_folder_of_another_user_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(PermissionError, match="another user"):
            files(tmp_path).append(passage(1))


class TestOrder:
    def test_files_of_two_writers_are_read_in_the_order_of_time(self, tmp_path: Path) -> None:
        first = files(tmp_path)
        first.append(passage(1))
        with segments(tmp_path)[0].open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_SH)  # as if the other were writing
            files(tmp_path).append(passage(2))
        first.append(passage(3))
        assert len(segments(tmp_path)) == 2
        assert numbers(tmp_path) == [1, 2, 3]

    def test_the_newest_are_read_when_there_are_more_than_asked_for(self, tmp_path: Path) -> None:
        writer = files(tmp_path)
        for n in range(50):
            writer.append(passage(n, 99))
        found = files(tmp_path, tokens=1_000).read()
        assert [p.tokens[0] for p in found] == list(range(40, 50))


WRITE_FOREVER = """
import sys, time
from array import array
from pathlib import Path
from tests.plugins.drafters._memory.test_files import files, Passage
writer, start = files(Path(sys.argv[1]), tokens=20_000_000), int(sys.argv[2])
for n in range(start, start + int(sys.argv[3])):
    writer.append(Passage(time.time(), array("i", [n] * 2_000)))
    print(n, flush=True)
"""


def write(root: Path, start: int, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITE_FOREVER, str(root), str(start), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[4])


class TestProcesses:
    def test_a_process_killed_while_it_writes_loses_at_most_the_last_request(self, tmp_path: Path) -> None:
        for attempt in range(3):
            writer = write(tmp_path, attempt * 1_000_000, 1_000_000)
            assert writer.stdout is not None
            said = [int(writer.stdout.readline()) for _ in range(20 + attempt)]
            writer.send_signal(signal.SIGKILL)
            said += [int(line) for line in writer.stdout]
            writer.wait()
            found = files(tmp_path, tokens=20_000_000).read()
            mine = [p.tokens[0] for p in found if p.tokens[0] // 1_000_000 == attempt and p.tokens[0] != 999_999]
            assert mine[: len(said)] == said
            assert len(mine) <= len(said) + 1
            assert all(p.tokens == array("i", [p.tokens[0]] * 2_000) for p in found)
            files(tmp_path).append(Passage(found[-1].time, array("i", [999_999] * 2_000)))  # it can be written again

    def test_two_processes_of_one_model_disturb_each_other_nowhere(self, tmp_path: Path) -> None:
        writers = [write(tmp_path, start, 60) for start in (0, 1_000)]
        for writer in writers:
            writer.communicate(timeout=60)
            assert writer.returncode == 0
        found = files(tmp_path).read()
        assert sorted(p.tokens[0] for p in found) == [*range(60), *range(1_000, 1_060)]
        assert all(p.tokens == array("i", [p.tokens[0]] * 2_000) for p in found)
