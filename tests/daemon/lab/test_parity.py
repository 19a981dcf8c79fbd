"""The proof on the real model: ids with drafters of every kind equal the plain ones."""

from __future__ import annotations

from collections import Counter

import pytest

from pilotfish.daemon.lab.parity import CONTENDERS, Subject, first_difference, run_parity
from pilotfish.daemon.lab.subjects import STOCK_LANE
from pilotfish.daemon.lab.workloads import MODES, load_workloads
from pilotfish.hooks.types import EngineOptions

OPTIONS = EngineOptions(n_ctx=1024, threads=1)  # one thread does not crawl when the machine is busy


@pytest.mark.parametrize(
    ("a", "b", "index"), [((), (), None), ((1, 2), (1, 2), None), ((1, 2), (1, 3), 1), ((1, 2), (1, 2, 3), 2)]
)
def test_the_first_difference_of_two_id_lists(a, b, index):
    assert first_difference(a, b) == index


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("state")


@pytest.mark.model
@pytest.mark.parametrize(("quantization", "tokens"), [("Q4_1", 32), ("Q8_0", 16), ("Q4_K_M", 16)])
def test_every_drafter_leaves_every_answer_as_it_is(quantized, state_dir, quantization, tokens):
    subject = Subject.load(quantized(quantization), state_dir, options=OPTIONS)
    try:
        trials = list(run_parity(subject, load_workloads(), MODES, n_predict=tokens))
    finally:
        subject.engine.close()
    assert len(trials) == 8 * len(MODES) * len(CONTENDERS)
    assert [trial for trial in trials if not trial.equal] == []
    accepted = Counter({c.title: sum(t.accepted for t in trials if t.contender == c.title) for c in CONTENDERS})
    drafted = Counter({c.title: sum(t.drafted for t in trials if t.contender == c.title) for c in CONTENDERS})
    assert accepted["oracle"] == drafted["oracle"] > 0
    assert 0 < accepted["oracle, every third wrong"] < drafted["oracle, every third wrong"]
    assert accepted["junk"] == 0 < drafted["junk"]
    assert drafted["suffix"] > 0


@pytest.mark.model
def test_the_control_outside_a_lane_finds_differences(quantized, state_dir):
    """Stock settings and every width: the same comparison fails, so passing it says something."""
    subject = Subject.load(quantized("Q4_K_M"), state_dir, lane=STOCK_LANE, options=OPTIONS)
    oracle = [contender for contender in CONTENDERS if contender.drafter == "oracle"]
    try:
        trials = run_parity(subject, load_workloads(), MODES, n_predict=64, contenders=oracle)
        assert any(not trial.equal for trial in trials)
    finally:
        subject.engine.close()
