"""A validation from its plan to its receipt: what is asked, what is found, and what it comes to."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from dataclasses import replace

import pytest

from pilotfish.daemon.config.types import Speculation
from pilotfish.daemon.drafters.pool import DrafterPool
from pilotfish.daemon.lab.fakes import FakeEngine
from pilotfish.daemon.lab.fakes.fake_engine import FakeSession
from pilotfish.daemon.lab.receipts.receipt_summary import summary
from pilotfish.daemon.lab.receipts.receipt_types import RunVerdict, TrialKind, TrialVerdict
from pilotfish.daemon.lab.validation import oracle_cases
from pilotfish.daemon.lab.validation.round_watch import RoundWatch
from pilotfish.daemon.lab.workloads import MODES
from tests.daemon.lab.validation.validating import PROMPTS, a_course


@pytest.fixture(scope="module")
def receipt():
    return a_course(FakeEngine(script=[*range(2, 22), 1])).run()


def test_every_trial_is_there_and_equal(receipt):
    kinds = Counter(trial.kind for trial in receipt.trials)
    lengths, repeats = 2, 2
    assert kinds == {
        TrialKind.COLD: 1,
        TrialKind.PLAIN: len(PROMPTS) * repeats,
        TrialKind.DRAFT: len(PROMPTS) * repeats * lengths,
        TrialKind.ORACLE: len(PROMPTS) * len(oracle_cases.CASES),
    }
    assert len({trial.name for trial in receipt.trials}) == len(receipt.trials)
    assert [trial.name for trial in receipt.trials if trial.verdict is TrialVerdict.DIFFERENT] == []
    assert receipt.verdict in (RunVerdict.PASSED, RunVerdict.NOT_PROMOTED)


def test_every_oracle_case_comes_up(receipt):
    oracles = {trial.case: trial for trial in receipt.trials if trial.kind is TrialKind.ORACLE}
    assert {case: trial.verdict for case, trial in oracles.items()} == dict.fromkeys(oracle_cases.CASES, "equal")
    blocks = {case: [(r.n_proposed, r.accepted) for r in trial.rounds] for case, trial in oracles.items()}
    assert blocks[oracle_cases.FULL][0] == (4, 4)
    assert {accepted for k, accepted in blocks[oracle_cases.FIRST] if k == 4} == {0}
    assert {accepted for k, accepted in blocks[oracle_cases.MIDDLE] if k == 4} == {2}
    assert {accepted for k, accepted in blocks[oracle_cases.LAST] if k == 4} == {3}
    assert oracles[oracle_cases.END].stop == "eos"
    assert oracles[oracle_cases.BUDGET].stop == "limit"
    assert 0 < blocks[oracle_cases.BUDGET][-1][0] < 4
    assert blocks[oracle_cases.ABORT][0] == (4, 4)


def test_a_trial_holds_its_ids_its_rounds_and_its_arrivals(receipt):
    trial = next(trial for trial in receipt.trials if trial.case == oracle_cases.FULL)
    assert sum((round.committed for round in trial.rounds), ()) == trial.output_ids == (*range(2, 22), 1)
    assert [arrival.tokens for arrival in trial.times.arrivals] == [round.n_committed for round in trial.rounds]
    assert trial.tokens == 21
    assert trial.terminated
    assert trial.rounds[0].position == trial.n_prompt == len(trial.prompt_ids)
    for round in trial.rounds:
        parts = round.times
        summed = parts.drafting + parts.bridging + parts.verification + (parts.transport or 0) + parts.overhead
        assert summed == pytest.approx(parts.total, abs=1e-4)
        assert parts.device is None


def test_every_trial_reads_its_prompt_anew(monkeypatch):
    opened, opens = [], FakeEngine.open

    def noted(engine, *words, **more):
        opened.append(opens(engine, *words, **more))
        return opened[-1]

    monkeypatch.setattr(FakeEngine, "open", noted)
    trials = a_course(FakeEngine(script=[*range(2, 22), 1])).run().trials
    assert len(opened) >= len(trials)
    assert {session.cached for session in opened} == {0}


def test_only_another_sampling_than_the_runs_is_told_of_a_trial():
    receipt = a_course().run()
    own = {trial.sampling for trial in receipt.trials if trial.sampling}
    assert receipt.settings.sampling not in own
    assert {trial.case for trial in receipt.trials if trial.sampling} <= {oracle_cases.END}


def test_what_was_cold_is_apart(receipt):
    assert receipt.trials[0].kind is TrialKind.COLD
    assert receipt.trials[1].verdict is TrialVerdict.REFERENCE


def test_an_engine_whose_rows_depend_on_the_width_fails(receipt):
    noisy = a_course(FakeEngine(noise=True)).run()
    different = [trial for trial in noisy.trials if trial.verdict is TrialVerdict.DIFFERENT]
    assert noisy.verdict is RunVerdict.FAILED
    assert {judgement.verdict for judgement in noisy.judgements} == {RunVerdict.FAILED}
    first = different[0]
    reference = noisy.trial(first.compared_with)
    assert first.output_ids[first.differs_at] != reference.output_ids[first.differs_at]
    assert first.failing_prefix == first.prompt_ids + reference.output_ids[: first.differs_at]
    assert "its rates are diagnostic" in summary(noisy)


def test_a_target_that_keeps_something_of_a_round_that_was_given_up_is_named(monkeypatch):
    given_up = FakeSession.rollback
    monkeypatch.setattr(FakeSession, "rollback", lambda self: replace(given_up(self), digest="0" * 32))
    failed = [trial for trial in a_course().run().trials if trial.verdict is TrialVerdict.FAILED]
    assert {trial.case for trial in failed} == {oracle_cases.ABORT}
    assert all("after a round was given up the target acknowledged" in trial.about for trial in failed)


def test_an_acknowledgement_that_lies_is_a_failed_trial():
    engine = FakeEngine()
    engine.lie_at = 3
    receipt = a_course(engine).run()
    assert receipt.verdict is RunVerdict.FAILED
    assert "acknowledged" in receipt.trials[1].about


def test_a_lane_that_is_narrower_than_what_was_asked_is_said_to_be():
    receipt = a_course(FakeEngine(widths=(1, 2, 3)), lengths=("2", "4", "8")).run()
    assert {trial.length for trial in receipt.trials if trial.kind is TrialKind.DRAFT} == {"2"}
    assert any("proposals of 4, 8: the lane holds 2" in note for note in receipt.notes)


def test_a_lane_without_drafts_has_nothing_to_promote():
    receipt = a_course(FakeEngine(widths=(1,)), oracle_cases=False).run()
    assert {trial.kind for trial in receipt.trials} == {TrialKind.COLD, TrialKind.PLAIN}
    assert receipt.verdict is RunVerdict.NOT_PROMOTED
    assert any("no drafts" in note for note in receipt.notes)


def test_with_auto_the_controller_chooses():
    receipt = a_course(lengths=("auto",), oracle_cases=False).run()
    auto = [trial for trial in receipt.trials if trial.kind is TrialKind.DRAFT]
    assert {trial.length for trial in auto} == {"auto"}
    assert all(trial.verdict is TrialVerdict.EQUAL for trial in auto)


def test_with_auto_the_controller_knows_what_taking_a_block_back_takes():
    engine = FakeEngine(script=[2, 3, 4, 5] * 25, going_back=60.0, on_forward=lambda width: time.sleep(0.001))
    receipt = a_course(engine, lengths=("auto",), repeats=1, oracle_cases=False, tokens=100).run()
    auto = [trial for trial in receipt.trials if trial.kind is TrialKind.DRAFT]
    assert sum(trial.tokens for trial in auto) == 100 * len(PROMPTS)
    assert sum(trial.proposed for trial in auto) == 0  # whatever is right of it, a minute is not made up for


def test_with_auto_the_configs_own_limits_are_in_force_and_with_a_length_none(monkeypatch):
    made, controller, guards = [], RoundWatch.controller, DrafterPool.guards

    def limited(watch, costs, **limits):
        made.append(tuple(limits.values()))
        return controller(watch, costs, **limits)

    def patient(pool, registry, prompt, seconds):
        made.append(seconds)
        return guards(pool, registry, prompt, seconds)

    monkeypatch.setattr(RoundWatch, "controller", limited)
    monkeypatch.setattr(DrafterPool, "guards", patient)
    own = Speculation(enabled=False, max_loss=0.5, max_width=3, deadline_ms=40, require_promotion=True)
    course = replace(a_course(drafters={"suffix": {}}, oracle_cases=False, repeats=1), speculation=own)
    course.plan = replace(course.plan, prompts=("tale",), lengths=("4", "auto"))
    receipt = course.run()
    general = (Speculation().max_width, Speculation().max_loss)
    assert made[-4:] == [general, 60.0, (3, 0.5), 0.04]
    assert receipt.settings.speculation == own


def test_a_length_is_asked_for_as_far_as_the_lane_holds_it_whatever_people_are_limited_to():
    script = [*range(2, 32)] * 2
    course = a_course(FakeEngine(script=script, widths=tuple(range(1, 33))), lengths=("24",), tokens=50)
    full = next(trial for trial in course.run().trials if trial.case == oracle_cases.FULL)
    assert (full.rounds[0].n_proposed, full.rounds[0].accepted) == (24, 24)


def interrupted_at(forward):
    """A course that Ctrl-C stops in that forward."""
    forwards = itertools.count(1)

    def interrupt(width):
        if next(forwards) == forward:
            raise KeyboardInterrupt

    return a_course(FakeEngine(on_forward=interrupt))


def test_a_run_that_is_stopped_keeps_what_was_answered_and_promotes_nothing():
    course = interrupted_at(150)
    receipt = course.run()
    everything = course.plan.trials(course.longest)
    assert course.stopped
    assert 3 < len(receipt.trials) < len(everything)
    assert {trial.verdict for trial in receipt.trials} == {TrialVerdict.REFERENCE, TrialVerdict.EQUAL}
    assert receipt.verdict is RunVerdict.NOT_PROMOTED
    assert receipt.judgements
    assert all("the run was stopped" in judgement.reasons for judgement in receipt.judgements)
    assert f"stopped after {len(receipt.trials)} of {len(everything)} answers" in summary(receipt)


def test_one_that_is_stopped_before_its_first_answer_leaves_nothing():
    with pytest.raises(KeyboardInterrupt):
        interrupted_at(1).run()


def test_seeded_answers_are_compared_as_well():
    course = a_course(oracle_cases=False)
    course.mode = replace(MODES[1])
    assert {trial.verdict for trial in course.run().trials} <= {TrialVerdict.EQUAL, TrialVerdict.REFERENCE}


def test_a_drafter_that_is_not_there_fails_its_trials_and_no_other():
    receipt = a_course(drafters={"suffix": {}, "nobody": {}}, oracle_cases=False).run()
    failed = [trial for trial in receipt.trials if trial.verdict is TrialVerdict.FAILED]
    assert {trial.drafter for trial in failed} == {"nobody"}
    assert all("nobody" in trial.about for trial in failed)


def test_a_drafter_on_a_thread_is_waited_for_and_what_the_wait_took_beyond_its_work_is_apart():
    script = [*range(2, 22), 1]
    slow = {"oracle": {"tokens": script, "delay_ms": 2}}
    receipt = a_course(FakeEngine(script=script), drafters=slow, lengths=("4",), repeats=1, oracle_cases=False).run()
    (trial, *_) = (trial for trial in receipt.trials if trial.kind is TrialKind.DRAFT)
    assert trial.verdict is TrialVerdict.EQUAL
    drafted = [round for round in trial.rounds if not round.fallback]
    assert drafted
    for round in drafted:
        assert round.times.transport is not None
        assert round.times.drafting > round.times.bridging  # it worked, and ids passed through as they are
        assert round.times.drafting + round.times.transport <= round.times.total
    plain = next(trial for trial in receipt.trials if trial.kind is TrialKind.PLAIN)
    assert {round.times.transport for round in plain.rounds} == {None}
