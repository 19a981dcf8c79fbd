"""Rounds on a fake engine: whatever the drafters do, the answer is the plain one."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.daemon.lab.fakes.fake_engine import EOS, FakeEngine
from pilotfish.daemon.lab.fakes.scripted_drafters import NoisyDrafter, ScriptedDrafter
from pilotfish.hooks.errors import EngineError, ProtocolViolation
from pilotfish.hooks.types import Placement, SamplingParams
from tests.daemon.core.asking import PROMPT, replay, request, truth
from tests.fakes.misbehaviour import JUNK, RAISED
from tests.fakes.session import PATIENCE, Always, answer

# --- the answer is the plain one -------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 1, 2, 3, 4, 15])
def test_any_number_of_proposals_gives_the_same_ids(most):
    plain = answer(FakeEngine(), request())
    drafter = NoisyDrafter(truth(FakeEngine()), wrong=0.3, n_vocab=32)
    drafted = answer(FakeEngine(), request(), [drafter], most=most)
    assert drafted.ids == plain.ids
    assert (drafted.outcome.timings.draft_n > 0) == (most > 0)
    assert not drafted.outcome.report.dropped


@settings(deadline=None)
@given(
    seed=st.integers(0, 99),
    temperature=st.sampled_from([0.0, 0.8]),
    wrong=st.floats(0, 1),
    n=st.integers(1, 60),
    prompt=st.lists(st.integers(2, 31), min_size=1, max_size=40),
)
def test_on_equals_off(seed, temperature, wrong, n, prompt):
    asked = request(n, prompt=tuple(prompt), sampling=SamplingParams(temperature=temperature, seed=seed))
    plain = answer(FakeEngine(), asked)
    drafter = NoisyDrafter(truth(FakeEngine()), wrong=wrong, n_vocab=32, seed=seed)
    drafted = answer(FakeEngine(), asked, [drafter])
    assert drafted.ids == plain.ids
    assert not drafted.outcome.report.dropped  # nothing that the drafter raised was taken for a plain step
    assert drafted.text == plain.text
    assert drafted.outcome.stop_type == plain.outcome.stop_type


@settings(deadline=None)
@given(
    at=st.integers(1, 12),
    what=st.sampled_from(["open", "propose", "commit", "rollback", "close"]),
    placement=st.sampled_from([Placement.INLINE, Placement.THREAD]),
)
def test_a_drafter_that_raises_anywhere_changes_nothing_but_speed(at, what, placement):
    plain = answer(FakeEngine(), request(20))
    calls = iter(range(1, 1000))

    def fail(operation):
        if operation == what and next(calls) >= at:
            raise RuntimeError("the drafter broke")

    drafter = ScriptedDrafter(replay(plain.ids), placement=placement, fail=fail)
    assert answer(FakeEngine(), request(20), [drafter]).ids == plain.ids


@settings(deadline=None)
@given(st.floats(0, 1), st.integers(0, 99))
def test_every_round_commits_at_least_one_token(wrong, seed):
    engine = FakeEngine()
    controller = Always(engine)
    answer(engine, request(), [NoisyDrafter(truth(engine), wrong=wrong, n_vocab=32, seed=seed)], controller=controller)
    assert controller.rounds
    assert all(1 <= committed <= proposed + 1 for proposed, committed in controller.rounds)


def test_a_perfect_drafter_fills_every_round_and_gets_the_bonus_token():
    plain = answer(FakeEngine(), request(32))
    engine = FakeEngine()
    drafted = answer(engine, request(32), [ScriptedDrafter(replay(plain.ids))], most=7)
    assert drafted.ids == plain.ids
    assert engine.widths == [8, 8, 8, 8]
    assert (drafted.outcome.timings.draft_n, drafted.outcome.timings.draft_n_accepted) == (28, 28)


def test_a_target_that_always_rejects_one_position_still_gets_past_it():
    plain = answer(FakeEngine(), request(40))
    wrong = list(plain.ids)
    wrong[20] = (wrong[20] + 1) % 32
    drafted = answer(FakeEngine(), request(40), [ScriptedDrafter(replay(wrong))])
    assert drafted.ids == plain.ids


def test_noise_that_depends_on_the_width_shows_in_the_ids():
    """The control: outside a lane the same coordinator does give other ids, so the tests above can fail."""
    plain = answer(FakeEngine(noise=True), request())
    drafter = NoisyDrafter(truth(FakeEngine()), wrong=0.3, n_vocab=32)
    assert answer(FakeEngine(noise=True), request(), [drafter]).ids != plain.ids


def test_forwards_only_have_widths_of_the_lane():
    engine = FakeEngine(widths=(1, 2, 4, 8))
    plain = answer(FakeEngine(), request())
    drafted = answer(engine, request(), [NoisyDrafter(truth(engine), wrong=0.2, n_vocab=32)], most=7)
    assert set(engine.widths) <= {1, 2, 4, 8}
    assert drafted.ids == plain.ids


# --- drafters that misbehave -----------------------------------------------------------------------------------


def test_an_empty_proposal_is_a_plain_step_and_leaves_nothing_behind():
    engine = FakeEngine()
    drafter = ScriptedDrafter()
    drafted = answer(engine, request(5), [drafter])
    assert engine.widths == [1] * 5
    assert not drafted.outcome.speculated
    assert drafted.outcome.timings.draft_n == 0


def test_ids_outside_the_vocabulary_are_cut_off_before_the_engine():
    engine = FakeEngine(n_vocab=32768, script=[12, 13, EOS])
    drafted = answer(engine, request(), [ScriptedDrafter(lambda history, k: [12, 40000])])
    assert drafted.ids == [12, 13, EOS]
    assert engine.widths[0] == 2


@pytest.mark.parametrize("placement", [Placement.INLINE, Placement.THREAD])
@pytest.mark.parametrize("junk", JUNK)
def test_something_that_is_no_proposal_costs_it_and_no_more(junk, placement):
    class Junk(ScriptedDrafter):
        def open(self, target, prompt):
            session = super().open(target, prompt)
            session.propose = lambda k: junk
            return session

    plain = answer(FakeEngine(), request(10))
    drafted = answer(FakeEngine(), request(10), [Junk(placement=placement)], deadline=60.0)
    assert drafted.ids == plain.ids
    assert drafted.outcome.report.dropped["scripted"].startswith("propose")
    assert drafted.outcome.timings.draft_n == 0


@pytest.mark.parametrize("placement", [Placement.INLINE, Placement.THREAD])
@pytest.mark.parametrize("error", RAISED)
@pytest.mark.parametrize("what", ["open", "propose", "commit", "rollback", "close"])
def test_whatever_a_drafter_raises_the_answer_is_the_plain_one(what, error, placement):
    def fail(operation):
        if operation == what:
            raise error

    plain = answer(FakeEngine(), request(10))
    drafter = ScriptedDrafter(replay(plain.ids), placement=placement, fail=fail)
    assert answer(FakeEngine(), request(10), [drafter], deadline=60.0).ids == plain.ids


def test_the_next_drafter_is_used_when_the_first_raises():
    def broken(what):
        if what == "propose":
            raise RuntimeError("no")

    engine = FakeEngine(script=[5, 6, EOS])
    first = ScriptedDrafter(name="first", fail=broken)
    second = ScriptedDrafter(lambda history, k: [5], name="second")
    drafted = answer(engine, request(), [first, second])
    assert engine.widths[0] == 2
    assert drafted.outcome.timings.draft_n_accepted >= 1
    assert first.sessions[0].closed == 1


def test_a_drafter_that_hangs_is_left_behind():
    over, engine = threading.Event(), FakeEngine()

    def hang(what):
        if what == "propose":
            assert over.wait(PATIENCE)

    def count(width):
        if len(engine.widths) == 10:  # the answer is there
            over.set()

    plain = answer(FakeEngine(), request(10))
    engine.on_forward = count
    drafter = ScriptedDrafter(replay(plain.ids), placement=Placement.THREAD, fail=hang)
    drafted = answer(engine, request(10), [drafter], deadline=0.05)
    assert drafted.ids == plain.ids
    assert "deadline" in drafted.outcome.report.dropped["scripted"]


def test_a_drafter_that_loses_the_history_is_dropped_and_the_answer_goes_on():
    class Forgetful(ScriptedDrafter):
        def open(self, target, prompt):
            session = super().open(target, prompt)
            session.commit = lambda tokens: session.history.ack()
            return session

    plain = answer(FakeEngine(), request(20))
    drafted = answer(FakeEngine(), request(20), [Forgetful(replay(plain.ids))])
    assert drafted.ids == plain.ids
    assert "acknowledged" in drafted.outcome.report.dropped["scripted"]


def test_a_drafter_that_was_not_asked_resumes_with_exactly_the_committed_history():
    plain = answer(FakeEngine(), request(40))
    engine = FakeEngine()

    class Paused(Always):
        def plan(self, position, room):
            return 0 if position - len(PROMPT) < 20 else super().plan(position, room)

    drafter = ScriptedDrafter(replay(plain.ids))
    drafted = answer(engine, request(40), [drafter], controller=Paused(engine))
    assert drafted.ids == plain.ids
    assert drafter.sessions[0].commits[0] == plain.ids[:20]
    assert list(drafter.sessions[0].history.tokens) == [*PROMPT, *plain.ids]


def test_a_drafter_sees_the_accepted_tokens_and_the_correction_once_each():
    engine = FakeEngine(script=[5, 6, 7, 8, EOS])
    drafter = ScriptedDrafter(lambda history, k: [5, 6, 9] if len(history) == 4 else [])
    answer(engine, request(), [drafter])
    assert drafter.sessions[0].commits[0] == [5, 6, 7]


# --- a target in doubt -----------------------------------------------------------------------------------------


def test_a_target_that_acknowledges_another_history_ends_the_session_and_delivers_nothing_of_the_round():
    plain = answer(FakeEngine(), request(10))
    engine = FakeEngine()
    engine.lie_at = 3
    delivered = []
    with pytest.raises(ProtocolViolation, match="given up"):
        answer(engine, request(10), emit=delivered.extend)
    assert [output_token.token for output_token in delivered] == plain.ids[:2]  # of the rounds before
    assert engine.open_sessions == 0


def test_of_a_drafted_round_that_the_target_does_not_acknowledge_nothing_is_delivered():
    plain = answer(FakeEngine(), request(32))
    engine = FakeEngine()
    engine.lie_at = 2
    delivered = []
    with pytest.raises(ProtocolViolation, match="given up"):
        answer(engine, request(32), [ScriptedDrafter(replay(plain.ids))], most=7, emit=delivered.extend)
    assert [output_token.token for output_token in delivered] == plain.ids[:8]


@pytest.mark.parametrize("error", RAISED)
def test_what_a_target_raises_is_the_requests_end_also_when_it_cannot_roll_back(error):
    engine, delivered = FakeEngine(), []

    def broken(tokens=()):
        raise error

    def open_(*arguments, **options):
        session = FakeEngine.open(engine, *arguments, **options)
        session.commit = session.rollback = broken
        return session

    engine.open = open_
    with pytest.raises(type(error)) as raised:
        answer(engine, request(10), emit=delivered.extend)
    assert raised.value is error
    assert delivered == []
    assert engine.open_sessions == 0


def test_an_engine_that_fails_in_a_forward_frees_the_slot_and_the_next_request_works():
    forwards = iter(range(1000))

    def fail(width):
        if next(forwards) == 3:
            raise EngineError("out of memory")

    engine = FakeEngine(on_forward=fail)
    with pytest.raises(EngineError, match="out of memory"):
        answer(engine, request(10))
    assert engine.open_sessions == 0
    assert answer(engine, request(10)).ids == answer(FakeEngine(), request(10)).ids


# --- one request after another ----------------------------------------------------------------------------------


def test_the_same_request_twice_counts_the_same_prompt():
    engine = FakeEngine()
    counts = []
    for _ in range(2):
        timings = answer(engine, request(5)).outcome.timings
        counts.append(timings.cache_n + timings.prompt_n)
        assert len(answer(engine, request(5)).ids) == 5
    assert counts == [len(PROMPT)] * 2
    assert timings.cache_n == len(PROMPT) - 1


def test_nothing_of_an_earlier_longer_prompt_is_in_the_drafters_history():
    engine = FakeEngine(n_vocab=128)
    drafter = ScriptedDrafter()
    answer(engine, request(5, prompt=tuple(range(1, 41))), [drafter])
    answer(engine, request(5, prompt=(1, 2, 99)), [drafter])
    assert list(drafter.sessions[1].history.tokens[:3]) == [1, 2, 99]
