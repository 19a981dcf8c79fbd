"""What `suffix` remembers from one request to the next, and what it forgets."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pilotfish.hooks.types import EMPTY, TargetPin, TokenizerPin, WeightPin
from pilotfish.lab.fakes import fake_pin
from pilotfish.plugins.drafters._memory import clock, files, memory
from pilotfish.plugins.drafters._memory.memory import AnswerMemory
from pilotfish.plugins.drafters._memory.records import Passage
from pilotfish.plugins.drafters.suffix import SuffixDrafter

PIN = fake_pin(1000)
OTHER = TargetPin("other:1b", (WeightPin("sha256:" + "1" * 64, Path("/x"), 0),), TokenizerPin("t", "fake", 1000))
SONG = list(range(100, 140))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture(params=["session", "disk"])
def mode(request: pytest.FixtureRequest) -> str:
    mode: str = request.param
    return mode


def suffix(**table: Any) -> SuffixDrafter:
    return SuffixDrafter({"min_probability": 0.0, **table})


def ask(drafter: SuffixDrafter, prompt: Sequence[int], output: Sequence[int], pin: TargetPin = PIN) -> None:
    """One whole request."""
    session = drafter.open(pin, prompt)
    session.commit(output)
    session.close()
    assert drafter.flush(20)


def drafts(drafter: SuffixDrafter, prompt: Sequence[int], k: int = 4, pin: TargetPin = PIN) -> list[int]:
    """What is proposed after `prompt`, by a request that leaves nothing behind."""
    session = drafter.open(pin, prompt)
    assert drafter.flush(20)
    return list(session.propose(k).tokens)


def pass_time(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """Let time pass, by every clock; counted from now each time."""
    clock, steady = time.time(), time.clock_gettime
    monkeypatch.setattr(time, "time", lambda: clock + days * 86_400)
    monkeypatch.setattr(time, "clock_gettime", lambda which: steady(which) + days * 86_400)


def set_clock(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """Set the clock, forward or back, while no time passes."""
    clock = time.time()
    monkeypatch.setattr(time, "time", lambda: clock + days * 86_400)


class TestRemembering:
    def test_what_the_model_wrote_before_is_proposed_again(self, mode: str) -> None:
        drafter = suffix(memory=mode)
        ask(drafter, [1, 2, 3], SONG)
        assert drafts(drafter, [7, 8, *SONG[:3]]) == SONG[3:7]

    def test_off_remembers_nothing(self) -> None:
        drafter = suffix(memory="off")
        ask(drafter, [1, 2, 3], SONG)
        assert drafts(drafter, SONG[:3]) == []

    def test_prompts_are_remembered_only_if_asked_for(self, mode: str) -> None:
        for prompts, expected in ((False, []), (True, SONG[3:7])):
            drafter = suffix(memory=mode, prompts=prompts)
            ask(drafter, SONG, [1, 2, 3])
            assert drafts(drafter, SONG[:3]) == expected

    def test_a_conversation_that_grows_is_remembered_once(self) -> None:
        drafter = suffix(prompts=True)
        conversation = list(range(300, 500))
        for turn in range(20):
            ask(drafter, conversation, [turn, 1, 2])
            conversation += [turn, 1, 2]
        memory = next(iter(drafter._memories.values()))
        assert len(conversation) < memory.tokens < len(conversation) + 20 * 40
        assert drafts(drafter, [5, *conversation[100:103]]) == conversation[103:107]

    def test_a_match_never_spans_two_requests(self, mode: str) -> None:
        drafter = suffix(memory=mode, min_match=2)
        ask(drafter, [], [1, 2, 3, 4, 5])
        ask(drafter, [], [6, 7, 8, 9, 10])
        assert drafts(drafter, [4, 5]) == []
        assert drafts(drafter, [5, 6]) == []
        assert drafts(drafter, [3, 4]) == [5]  # and nothing of what the next request said

    def test_models_do_not_share_a_memory(self, mode: str) -> None:
        drafter = suffix(memory=mode)
        ask(drafter, [], SONG, pin=OTHER)
        assert drafts(drafter, SONG[:3]) == []
        assert drafts(drafter, SONG[:3], pin=OTHER) == SONG[3:7]

    def test_a_match_in_this_request_is_preferred_to_an_equal_one_in_the_memory(self) -> None:
        drafter = suffix()
        ask(drafter, [], [1, 2, 3, 50, 51, 52])
        assert drafts(drafter, [1, 2, 3, 60, 61, 62, 9, 1, 2, 3], 2) == [60, 61]

    def test_a_longer_match_in_the_memory_is_preferred_to_a_short_one_in_this_request(self) -> None:
        drafter = suffix()
        ask(drafter, [], SONG)
        assert drafts(drafter, [SONG[8], SONG[9], 60, 61, *SONG[:10]], 3) == SONG[10:13]

    def test_a_memory_that_is_being_changed_is_not_waited_for(self) -> None:
        drafter = suffix()
        ask(drafter, [], SONG)
        session = drafter.open(PIN, SONG[:3])
        memory = next(iter(drafter._memories.values()))
        with memory._lock:
            assert session.propose(4) == EMPTY
        assert session.propose(4).tokens == tuple(SONG[3:7])

    def test_tokens_in_the_memory_take_fewer_than_a_hundred_bytes(self) -> None:
        drafter = suffix(memory_tokens=1_000_000)
        for start in range(10):
            ask(drafter, [], [(start * 7919 + i * i) % 49_152 for i in range(5_000)])
        memory = next(iter(drafter._memories.values()))
        assert memory.tokens == 10 * 5_001
        assert memory.nbytes() / memory.tokens < 60


class TestBounds:
    def test_the_oldest_requests_go_first_and_whole(self, mode: str) -> None:
        drafter = suffix(memory=mode, memory_tokens=1_000)
        for turn in range(30):
            ask(drafter, [], [turn, *range(turn * 30 + 50, turn * 30 + 149)])
            memory = next(iter(drafter._memories.values()))
            assert memory.tokens <= 1_000
        assert drafts(drafter, [29, 29 * 30 + 50], 2) == [29 * 30 + 51, 29 * 30 + 52]
        assert drafts(drafter, [0, 50], 2) == []
        assert memory.tokens % 101 == 0

    def test_a_request_larger_than_the_memory_leaves_its_end(self, mode: str) -> None:
        drafter = suffix(memory=mode, memory_tokens=1_000)
        long = list(range(10_000))
        ask(drafter, [], long)
        assert next(iter(drafter._memories.values())).tokens <= 1_000
        assert drafts(drafter, [9_900, 9_901], 2) == [9_902, 9_903]
        assert drafts(drafter, [100, 101], 2) == []

    def test_the_files_stay_within_the_bound_too(self, state: Path) -> None:
        drafter = suffix(memory="disk", memory_tokens=2_000)
        for turn in range(60):
            ask(drafter, [], list(range(turn, turn + 100)))
        (info,) = drafter.memories()
        assert 1_000 < info.tokens <= 2_000
        assert info.bytes < 4 * 2_000 + 20 * info.requests + 1_000
        assert drafts(suffix(memory="disk", memory_tokens=2_000), [59, 60], 2) == [61, 62]

    def test_what_is_too_old_is_dropped(self, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
        drafter = suffix(memory=mode, memory_days=2)
        ask(drafter, [], SONG)
        pass_time(monkeypatch, days=1)
        assert drafts(drafter, SONG[:3]) == SONG[3:7]
        pass_time(monkeypatch, days=3)
        assert drafts(drafter, SONG[:3]) == []
        assert drafter.memories() == [] or drafter.memories()[0].tokens == 0
        assert drafts(suffix(memory=mode, memory_days=2), SONG[:3]) == []


class TestAClockThatIsSet:
    """What is remembered outlives a clock that is wrong for a while."""

    @pytest.mark.parametrize("days", [40, 40 * 365, -40, -40 * 365])
    def test_while_a_process_runs(self, mode: str, monkeypatch: pytest.MonkeyPatch, days: int) -> None:
        drafter = suffix(memory=mode)
        ask(drafter, [], SONG)
        with monkeypatch.context() as wrong:
            set_clock(wrong, days)
            pass_time(wrong, days=0.1)  # long enough to look for what is too old
            assert drafts(drafter, SONG[:3]) == SONG[3:7]
            ask(drafter, [], [1, 2, 3, 4, 5])
        assert drafts(drafter, SONG[:3]) == SONG[3:7]

    @pytest.mark.parametrize("days", [40, 40 * 365, -40, -40 * 365])
    def test_before_a_process_began(self, monkeypatch: pytest.MonkeyPatch, days: int) -> None:
        ask(suffix(memory="disk"), [], SONG)
        with monkeypatch.context() as wrong:
            set_clock(wrong, days)
            wrong.setattr(clock, "_began", time.time())
            drafts(suffix(memory="disk"), SONG[:3])
        assert drafts(suffix(memory="disk"), SONG[:3]) == SONG[3:7]

    def test_what_is_really_too_old_goes_with_the_next_request(self, state: Path) -> None:
        ask(suffix(memory="disk"), [], SONG)
        (old,) = state.rglob("*.seg")
        os.utime(old, (1e9, 1e9))
        suffix(memory="disk").flush(20)
        assert old.exists()
        with old.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_SH)  # as another process that writes to it: a file of its own for the next
            ask(suffix(memory="disk"), [], [1, 2, 3, 4, 5])
        drafts(suffix(memory="disk"), [1, 2])
        assert not old.exists()


class TestAcrossRestarts:
    def test_the_disk_outlives_the_process_and_the_session_does_not(self, mode: str) -> None:
        ask(suffix(memory=mode), [], SONG)
        assert drafts(suffix(memory=mode), SONG[:3]) == (SONG[3:7] if mode == "disk" else [])

    def test_session_writes_no_file(self, state: Path) -> None:
        ask(suffix(memory="session"), [], SONG)
        assert not (state / "memory").exists()

    def test_the_folder_can_be_chosen(self, tmp_path: Path, state: Path) -> None:
        ask(suffix(memory="disk", folder=str(tmp_path / "mine")), [], SONG)
        assert not (state / "memory").exists()
        assert drafts(suffix(memory="disk", folder=str(tmp_path / "mine")), SONG[:3]) == SONG[3:7]

    def test_only_the_owner_can_read_it(self, state: Path) -> None:
        ask(suffix(memory="disk"), [], SONG)
        for path in (state / "memory").rglob("*"):
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
        assert (state / "memory").stat().st_mode & 0o777 == 0o700

    def test_a_request_that_comes_while_the_files_are_read_is_not_held_up(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ask(suffix(memory="disk"), [], SONG)
        go = threading.Event()
        read = files.MemoryFiles.read

        def slow(files: files.MemoryFiles) -> list[Passage]:
            go.wait(20)
            return read(files)

        monkeypatch.setattr(files.MemoryFiles, "read", slow)
        drafter = suffix(memory="disk")
        session = drafter.open(PIN, SONG[:3])
        assert session.propose(4) == EMPTY
        go.set()
        assert drafter.flush(20)
        assert session.propose(4).tokens == tuple(SONG[3:7])

    def test_a_memory_loaded_in_slices_finds_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        drafter = suffix(memory="disk")
        for turn in range(30):
            ask(drafter, [], [turn, *range(turn * 20 + 40, turn * 20 + 140)])
        monkeypatch.setattr(memory, "SLICE", 97)
        again = suffix(memory="disk")
        for turn in range(30):
            assert drafts(again, [turn, turn * 20 + 40], 3) == [turn * 20 + i for i in (41, 42, 43)]


class TestClearing:
    def clears(self) -> dict[str, Callable[[SuffixDrafter], object]]:
        return {
            "all": lambda drafter: drafter.forget(),
            "one": lambda drafter: drafter.forget(drafter.memories()[0]),
            "by hand": lambda drafter: shutil.rmtree(drafter.config.memory.root),
        }

    @pytest.mark.parametrize("how", ["all", "one", "by hand"])
    def test_a_process_that_holds_the_memory_forgets_it_at_its_next_request(self, how: str) -> None:
        running = suffix(memory="disk")
        ask(running, [], SONG)
        assert drafts(running, SONG[:3]) == SONG[3:7]
        self.clears()[how](suffix(memory="disk"))
        assert drafts(running, SONG[:3]) == []
        assert suffix(memory="disk").memories() == []

    def test_clearing_everything_reaches_a_process_without_files(self) -> None:
        running = suffix(memory="session")
        ask(running, [], SONG)
        suffix().forget()
        assert drafts(running, SONG[:3]) == []

    def test_a_request_that_began_before_leaves_nothing(self, mode: str) -> None:
        running = suffix(memory=mode)
        ask(running, [], [1, 2, 3, 4])
        session = running.open(PIN, [])
        session.commit(SONG)
        suffix(memory="disk").forget()
        session.close()
        assert running.flush(20)
        assert drafts(running, SONG[:3]) == []
        assert suffix(memory="disk").memories() == []

    def test_it_remembers_again_afterwards_and_can_be_cleared_again(self, mode: str) -> None:
        running = suffix(memory=mode)
        for _ in range(3):
            ask(running, [], SONG)
            assert drafts(running, SONG[:3]) == SONG[3:7]
            suffix().forget()
            assert drafts(running, SONG[:3]) == []

    def test_one_models_memory_goes_and_the_others_stays(self) -> None:
        drafter = suffix(memory="disk")
        ask(drafter, [], SONG)
        ask(drafter, [], SONG, pin=OTHER)
        mine = next(info for info in drafter.memories() if info.model == "other:1b")
        drafter.forget(mine)
        assert [info.model for info in drafter.memories()] == ["fake:latest"]
        assert drafts(drafter, SONG[:3]) == SONG[3:7]
        assert drafts(drafter, SONG[:3], pin=OTHER) == []

    def test_folders_of_other_things_are_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "films").mkdir()
        (tmp_path / "films" / "part.seg").write_bytes(b"not ours")
        drafter = suffix(memory="disk", folder=str(tmp_path))
        ask(drafter, [], SONG)
        assert len(drafter.memories()) == 1
        drafter.forget()
        assert (tmp_path / "films" / "part.seg").read_bytes() == b"not ours"

    def test_a_clear_that_was_interrupted_is_finished(self, state: Path) -> None:
        drafter = suffix(memory="disk")
        ask(drafter, [], SONG)
        left = state / "memory" / ".cleared-0000"
        drafter.memories()[0].path.rename(left)
        assert drafter.memories() == []
        assert not left.exists()


class TestADiskThatFails:
    def test_costs_no_request_and_one_line(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "file").write_text("in the way")
        drafter = suffix(memory="disk", folder=str(tmp_path / "file"))
        with caplog.at_level(logging.WARNING, "pilotfish.memory"):
            for _ in range(3):
                ask(drafter, [], SONG)
        assert drafts(drafter, SONG[:3]) == SONG[3:7]
        assert len(caplog.records) == 1
        assert str(tmp_path / "file") in caplog.text

    def test_what_is_not_expected_is_logged_and_the_next_request_is_remembered(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        drafter = suffix()
        enter = AnswerMemory._enter
        monkeypatch.setattr(AnswerMemory, "_enter", lambda *arguments: 1 / 0)
        ask(drafter, [], SONG)
        assert "ZeroDivisionError" in caplog.text
        monkeypatch.setattr(AnswerMemory, "_enter", enter)
        ask(drafter, [], SONG)
        assert drafts(drafter, SONG[:3]) == SONG[3:7]
