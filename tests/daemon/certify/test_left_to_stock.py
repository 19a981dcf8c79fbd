"""What is remembered of a launch that stock serves, and when it counts no more."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.daemon.certify.left_to_stock import DAY, MOST_TRIES, Left, LeftToStock

NOW = time.time()
SLIDING = Left("its sliding window", NOW)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(b"GGUF")
    os.utime(path, (1, 1))
    time.sleep(0.06)  # what was changed a moment ago is not remembered
    return path


@pytest.fixture
def verdicts(tmp_path: Path, weights: Path) -> LeftToStock:
    return LeftToStock(tmp_path / "state", weights)


def test_it_is_found_under_the_same_circumstances_only(verdicts, tmp_path, weights):
    verdicts.put("these", SLIDING)
    again = LeftToStock(tmp_path / "state", weights)
    assert again.find("these") == SLIDING
    assert again.find("others") is None
    assert again.newest() == SLIDING
    verdicts.put("these", replace(SLIDING, job="a job"))
    assert again.newest() == SLIDING, "what is shown has no job"


def test_of_several_the_newest_is_shown(verdicts):
    verdicts.put("then", Left("an old reason", NOW - 5))
    verdicts.put("now", SLIDING)
    verdicts.put("before", Left("an older reason", NOW - 50))
    assert verdicts.newest() == SLIDING


def test_a_changed_file_is_another_one(verdicts, weights):
    verdicts.put("these", SLIDING)
    weights.write_bytes(b"GGUF again")
    assert verdicts.find("these") is None


def test_one_with_a_time_is_void_after_it(verdicts):
    verdicts.put("these", Left("unknown architecture", NOW, until=NOW + DAY))
    assert verdicts.find("these") is not None
    verdicts.put("these", Left("unknown architecture", NOW - DAY, until=NOW - 1))
    assert verdicts.find("these") is None
    verdicts.put("these", Left("from a clock that was put back", NOW + DAY, until=NOW + 2 * DAY))
    assert verdicts.find("these") is None


def test_one_that_a_certificate_gave_is_void_without_it(verdicts, tmp_path):
    certificate = tmp_path / "c.json"
    certificate.touch()
    verdicts.put("these", Left("all widths differ", NOW, certificate=str(certificate)))
    assert verdicts.find("these") is not None
    certificate.unlink()
    assert verdicts.find("these") is None


def test_forgotten_it_is_gone(verdicts):
    verdicts.put("these", SLIDING)
    verdicts.forget()
    assert verdicts.find("these") is None


def test_only_so_many_are_kept(verdicts):
    for number in range(40):
        verdicts.put(str(number), SLIDING)
    assert [verdicts.find(str(number)) is None for number in (0, 23, 24, 39)] == [True, True, False, False]


def test_what_cannot_be_read_or_written_is_not_remembered(tmp_path, weights):
    (tmp_path / "state").write_text("a file")
    for verdicts in (LeftToStock(tmp_path / "state", weights), LeftToStock(None, weights)):
        verdicts.put("these", SLIDING)
        verdicts.forget()
        assert verdicts.find("these") is None
    gone = LeftToStock(tmp_path, tmp_path / "gone")
    gone.put("these", SLIDING)
    assert gone.newest() is None


@pytest.mark.parametrize("entry", [None, {}, {"reason": "", "since": "x", "until": None, "certificate": ""}, []])
def test_an_entry_that_makes_no_sense_is_none(verdicts, entry):
    verdicts._write({"these": entry})
    assert verdicts.find("these") is None


def test_one_that_a_load_found_is_due_for_a_longer_look_a_few_times_a_day_apart(verdicts):
    assert not SLIDING.due, "nobody knows what to certify"
    verdicts.put("these", replace(SLIDING, job="a job"))
    for tries in range(MOST_TRIES):
        left = verdicts.find("these")
        assert left.due
        assert left.tries == tries
        verdicts.tried("these")
        tried = verdicts.find("these")
        assert not tried.due
        assert (tried.reason, tried.since) == (SLIDING.reason, SLIDING.since)
        verdicts.put("these", replace(tried, tried=tried.tried - DAY))
    assert not verdicts.find("these").due, "often enough"
    verdicts.tried("others")
    assert verdicts.find("others") is None


def test_one_of_an_earlier_version_is_read(verdicts):
    verdicts._write({"these": {"reason": "old", "since": NOW, "until": None, "certificate": ""}})
    assert verdicts.find("these") == Left("old", NOW)
