"""A run that was broken off goes on: what counts as compared, and what is another comparison."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest

from pilotfish.daemon.lab.fakes import FakeEngine, fake_pin
from pilotfish.daemon.lab.parity_pins import Compared, read_results
from pilotfish.daemon.lab.parity_runs import Trial, run_parity
from pilotfish.daemon.lab.parity_subject import Subject
from pilotfish.daemon.lab.parity_together import JointTrial
from pilotfish.daemon.lab.workloads import MODES, Workload
from pilotfish.hooks.types import EnginePin
from tests.daemon.lab.fake_subject import subject

CHATS = [Workload(f"chat {i}", "open", f"say {i} and {i} once more", "") for i in range(2)]


def trials(of: Subject | None = None, **how) -> list[Trial]:
    return list(run_parity(of or subject(FakeEngine()), CHATS, MODES, **{"n_predict": 6, **how}))


@pytest.fixture
def log(tmp_path):
    """What a whole run writes."""
    path = tmp_path / "log"
    path.write_text("".join(json.dumps(trial.to_json()) + "\n" for trial in trials()))
    return path


def test_what_was_written_is_what_was_found(log):
    found = list(read_results(log, Trial))
    assert found == trials()
    assert len({trial.pins for trial in found}) == len(found) == 2 * 2 * 4
    assert all(trial in Compared(found) for trial in found)


def test_only_what_is_missing_is_asked_and_the_plain_answer_only_for_that(log):
    whole = list(read_results(log, Trial))
    engine = FakeEngine()
    assert trials(subject(engine), compared=Compared(whole)) == whole
    assert engine.widths == []
    some = [trial for trial in whole if trial.workload == "chat 0" or trial.contender == "junk"]
    again = trials(subject(engine), compared=Compared(some))
    assert [trial.pins for trial in again] == [trial.pins for trial in whole]
    assert [trial in Compared(some) for trial in again] == [trial in some for trial in whole]
    assert len(engine.widths) > 0


def test_lines_that_are_no_results_are_passed_over(log):
    lines = log.read_text().splitlines()
    broken = [lines[0][:50], "[]", "null", "7", "", "no json", json.dumps({"model": "x"})]
    log.write_text("\n".join([*broken, lines[3], lines[4][:-10]]))
    assert [trial.to_json() for trial in read_results(log, Trial)] == [json.loads(lines[3])]
    assert list(read_results(log, JointTrial)) == []


def otherwise(engine: FakeEngine) -> FakeEngine:
    engine.lane = replace(engine.lane, exact_cache=True)
    return engine


def built_anew(engine: FakeEngine) -> FakeEngine:
    engine.engine = EnginePin("fake", "1", "built anew")
    return engine


OTHER_WEIGHTS = replace(fake_pin(), weights=(replace(fake_pin().weights[0], digest="sha256:1"),))


@pytest.mark.parametrize(
    ("of", "how"),
    [
        (partial(subject, FakeEngine(), OTHER_WEIGHTS), {}),
        (lambda: subject(built_anew(FakeEngine())), {}),
        (lambda: subject(otherwise(FakeEngine())), {}),
        (lambda: subject(FakeEngine(widths=(1, 2, 4))), {}),
        (lambda: subject(FakeEngine(), threads=3), {}),
        (lambda: subject(FakeEngine()), {"n_predict": 7}),
        (lambda: subject(FakeEngine()), {"depth": 10}),
        (lambda: subject(FakeEngine()), {"prompts": "fast"}),
    ],
    ids=["weights", "engine", "lane", "widths", "threads", "tokens", "depth", "prompts"],
)
def test_whatever_is_different_is_another_comparison(log, of, how):
    assert not {trial.pins for trial in trials(of(), **how)} & {trial.pins for trial in read_results(log, Trial)}


def test_another_version_of_pilotfish_is_another_comparison(log, monkeypatch):
    monkeypatch.setattr("pilotfish.daemon.lab.parity_pins.__version__", "another")
    assert not {trial.pins for trial in trials()} & {trial.pins for trial in read_results(log, Trial)}
