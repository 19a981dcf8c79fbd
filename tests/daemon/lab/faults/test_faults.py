"""Every fault of the kit is caught, and named, by the command that is there for it."""

from __future__ import annotations

import pytest

from pilotfish.daemon.lab.conformance import CHECKS, Harness, Nonconformance
from pilotfish.daemon.lab.conformance.verifier_checks import VERIFIER_CHECKS, EngineHarness
from pilotfish.daemon.lab.conformance.verifiers import begins_texts
from pilotfish.daemon.lab.diagnose.failing_trial import reproduction_of
from pilotfish.daemon.lab.fakes import FakeEngine, ScriptedDrafter
from pilotfish.daemon.lab.faults import (
    BosDroppingTokenizer,
    CellKeepingEngine,
    FalselyAcknowledgingDrafter,
    WidthSensitiveEngine,
)
from pilotfish.daemon.lab.faults.faulty_engines import FaultyEngine
from pilotfish.daemon.lab.parity_runs import run_parity
from pilotfish.daemon.lab.receipts.receipt_types import RunVerdict, TrialVerdict
from pilotfish.daemon.lab.workloads import MODES, load_workloads
from pilotfish.hooks.types import TokenizerPin
from tests.daemon.lab.fake_subject import subject
from tests.daemon.lab.validation.validating import a_course

BOS = 9
PIN = TokenizerPin("fake", "fake", 32, bos=BOS, add_bos=True)


def failures(checks, harness) -> dict[str, str]:
    """What each check that fails says."""
    found = {}
    for check in checks:
        try:
            check(harness)
        except Nonconformance as error:
            found[check.__name__] = str(error)
    return found


def test_around_a_sound_engine_without_a_fault_nothing_is_found():
    assert failures(VERIFIER_CHECKS, EngineHarness(FaultyEngine(FakeEngine()))) == {}


def test_an_engine_that_answers_otherwise_in_some_widths_is_named_by_conformance():
    found = failures(VERIFIER_CHECKS, EngineHarness(WidthSensitiveEngine(FakeEngine(), {3, 4})))
    assert "the answer in forwards of 3 tokens" in found["perfect_proposals_change_nothing"]
    assert "starts_with_the_prompt" not in found


def test_an_engine_that_keeps_a_rejected_cell_is_named_by_conformance():
    found = failures(VERIFIER_CHECKS, EngineHarness(CellKeepingEngine(FakeEngine())))
    assert "wrong at the third" in found["rejected_proposals_change_nothing"]
    assert "perfect_proposals_change_nothing" not in found  # nothing was rejected


@pytest.mark.parametrize("fault", [lambda engine: WidthSensitiveEngine(engine, {2, 3, 4}), CellKeepingEngine])
def test_both_change_answers_under_parity(fault):
    def trials(wrapped):
        return list(run_parity(subject(wrapped(FakeEngine())), load_workloads()[:3], MODES[:1], n_predict=24))

    assert all(trial.equal for trial in trials(FaultyEngine))
    assert {trial.contender for trial in trials(fault) if not trial.equal}


@pytest.mark.parametrize("fault", [lambda engine: WidthSensitiveEngine(engine, {2, 3, 4}), CellKeepingEngine])
def test_both_fail_a_validation_whose_trials_can_be_diagnosed(fault):
    receipt = a_course(fault(FakeEngine())).run()
    assert receipt.verdict is RunVerdict.FAILED
    failed = [trial for trial in receipt.trials if trial.verdict is TrialVerdict.DIFFERENT]
    assert failed
    for trial in failed:
        asked = reproduction_of(receipt, trial)
        assert asked.prefix == (*trial.prompt_ids, *trial.output_ids[: trial.differs_at])
        assert asked.other.width > asked.plain.width == 1


def test_a_tokenizer_that_drops_bos_is_named_by_conformance():
    class Beginning(FakeEngine):
        """Its tokenizer adds BOS."""

        def __init__(self):
            super().__init__()
            bare = self.tokenizer.encode
            self.tokenizer.encode = lambda text, add_special=True, parse_special=True: [BOS] * add_special + bare(text)

    engine = Beginning()
    begins_texts(engine, PIN)
    engine.tokenizer = BosDroppingTokenizer(engine.tokenizer, BOS)
    with pytest.raises(Nonconformance, match=r"begins with \[2\], and the model asks for BOS, \[9\]"):
        begins_texts(engine, PIN)


def test_a_drafter_that_acknowledges_what_it_does_not_hold_is_named_by_conformance():
    drafter = FalselyAcknowledgingDrafter(ScriptedDrafter(), round=2)
    found = {}
    for check in CHECKS:
        try:
            check.run(Harness(drafter))
        except Nonconformance as error:
            found[check.name] = str(error)
    assert "with another digest than the committed ones have" in found["one commit or many"]
    assert "starts with the prompt" not in found
