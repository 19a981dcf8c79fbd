"""The drafter that knows the answer: right, always wrong, wrong from some point on, or without a recording."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilotfish.daemon.lab.bench_replay import ReplayDrafter
from pilotfish.daemon.lab.bench_systems import SPECULATIVE, pilotfish_systems
from pilotfish.hooks.protocols import Drafter
from pilotfish.hooks.types import EMPTY, Placement
from pilotfish.lab.conformance import DrafterConformance
from pilotfish.lab.fakes import fake_pin

PROMPT = [3, 4]
OUTPUT = [10, 11, 12, 13, 14, 15, 16, 17]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "recording.json"
    path.write_text(json.dumps({"tokens": OUTPUT}))
    return path


class TestConformance(DrafterConformance):
    @pytest.fixture
    def drafter(self, recording: Path) -> Drafter:
        return ReplayDrafter({"recording": str(recording), "wrong_from": 4})


def session(recording: Path, **table: object):
    return ReplayDrafter({"recording": str(recording), **table}).open(fake_pin(), PROMPT)


def test_it_is_certain_and_proposes_what_comes_next(recording):
    replay = session(recording)
    assert replay.propose(3).tokens == (10, 11, 12)
    assert replay.propose(3).confidence == (1.0, 1.0, 1.0)
    replay.commit([10, 11, 12, 13])
    assert replay.propose(9).tokens == (14, 15, 16, 17)


def test_every_session_reads_the_recording_anew(recording):
    drafter = ReplayDrafter({"recording": str(recording)})
    drafter.open(fake_pin(), PROMPT).close()
    recording.write_text(json.dumps({"tokens": [20, 21]}))
    assert drafter.open(fake_pin(), PROMPT).propose(3).tokens == (20, 21)


def test_once_the_answer_is_another_one_it_says_nothing(recording):
    replay = session(recording)
    replay.commit([10, 30])
    assert replay.propose(3) == EMPTY


@pytest.mark.parametrize(("wrong_from", "proposed"), [(0, (11, 12, 13)), (1, (10, 12, 13)), (-1, (10, 11, 12))])
def test_it_is_wrong_from_the_position_asked_for(recording, wrong_from, proposed):
    assert session(recording, wrong_from=wrong_from).propose(3).tokens == proposed


def test_it_is_wrong_at_every_nth_token(recording):
    assert session(recording, wrong_every=3).propose(8).tokens == (10, 11, 13, 13, 14, 16, 16, 17)


@pytest.mark.parametrize("text", [None, "", "{}", '{"tokens": 3'])
def test_without_a_recording_it_proposes_nothing(tmp_path, text):
    path = tmp_path / "recording.json"
    if text is not None:
        path.write_text(text)
    assert session(path).propose(3) == EMPTY


def test_one_that_takes_its_time_gets_a_thread_with_a_deadline(recording):
    assert ReplayDrafter({"recording": str(recording)}).placement is Placement.INLINE
    assert ReplayDrafter({"recording": str(recording), "delay_ms": 1}).placement is Placement.THREAD


def test_the_adversaries_are_wrong_at_once_slow_and_wrong_later():
    tables = {s.part: s.replay for s in pilotfish_systems("ik", adversaries=True, n_predict=256)}
    assert tables == {
        "pilotfish plain": None,
        SPECULATIVE: None,
        "pilotfish oracle": {},
        "pilotfish junk": {"wrong_from": 0},
        "pilotfish slow": {"delay_ms": 50},
        "pilotfish fickle": {"wrong_from": 200},
    }
    short = {s.part: s.replay for s in pilotfish_systems("ik", adversaries=True, n_predict=64)}
    assert short["pilotfish fickle"] == {"wrong_from": 32}
