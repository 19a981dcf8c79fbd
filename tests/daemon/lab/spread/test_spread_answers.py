"""Answers over far ends: plain and speculative by turns, compared, with what the controller learned meanwhile."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from pilotfish.daemon.lab.fakes import FakeEngine
from pilotfish.daemon.lab.spread.spread_answers import answers_row, chosen_workloads
from pilotfish.daemon.lab.spread.spread_row import SpreadRow, SpreadSize
from pilotfish.hooks.types import EngineOptions
from tests.daemon.lab.fake_subject import subject

SIZE = SpreadSize(tokens=40, rounds=2)
FORWARD = 0.001  # seconds, whatever the width: as over a slow network


def row_of(engine, heard=lambda what: None):
    loaded = partial(subject, engine)
    return answers_row(Path("m.gguf"), EngineOptions(), SIZE, heard, load=lambda *words, options: loaded())


def repeating():
    return FakeEngine(script=[5, 6, 7, 8] * 40, n_ctx=2048, on_forward=lambda width: time.sleep(FORWARD))


@pytest.fixture(scope="module")
def found():
    return row_of(repeating())


def test_one_workload_of_each_kind_is_answered_in_every_mode():
    stages = []
    found = row_of(FakeEngine(n_ctx=2048), stages.append)
    assert [workload.kind for workload in chosen_workloads()] == ["copy", "open"]
    asked = [(answer.kind, answer.mode) for answer in found.row.answers]
    assert asked == [("copy", "greedy"), ("open", "greedy"), ("copy", "seeded"), ("open", "seeded")]
    assert stages[0] == "loading"
    assert len(stages) == 5
    assert set(found.prompts) == {answer.workload for answer in found.row.answers}


def test_drafts_change_no_id_and_every_round_has_a_rate(found):
    answer = found.row.answers[0]
    assert answer.equal
    assert len(answer.ids) == SIZE.tokens
    assert (len(answer.plain), len(answer.speculative)) == (SIZE.rounds, SIZE.rounds)
    assert answer.drafted >= answer.accepted > 0


def test_where_rows_depend_on_the_width_it_shows():
    """Among four ids every text soon repeats itself, so that something is drafted."""
    noisy = FakeEngine(noise=True, n_vocab=4, eog=frozenset(), n_ctx=2048, on_forward=lambda width: time.sleep(FORWARD))
    assert any(answer.differs for answer in row_of(noisy).row.answers)


def test_a_row_survives_the_pipe_and_says_what_forwards_cost(found):
    row = found.row
    assert SpreadRow.from_json(row.to_json()) == row
    assert (row.lane, row.widths) == ("fake", tuple(range(1, 17)))
    assert any(cost.width == 1 and cost.samples for cost in row.learned)
