"""What the controller decides, on a clock that only moves when a forward is run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotfish.daemon.core.company import Company
from pilotfish.daemon.core.controller import Controller, Eager
from pilotfish.daemon.core.costs import CostModel, Round
from pilotfish.daemon.core.loss_account import GRACE, MAX_LOSS
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine
from pilotfish.daemon.lab.fakes.scripted_drafters import ScriptedDrafter
from pilotfish.hooks.types import EMPTY, Proposal
from tests.daemon.core.controlled import CHEAP, DEAR, PLAIN, PROMPT, controller_knowing, perfect, plain, request, run
from tests.fakes.session import answer


def test_a_drafter_that_is_right_is_used_at_the_widest_forward_that_pays():
    result, seconds, engine = run(CHEAP, perfect(400), 400)
    assert engine.widths.count(16) > 15
    assert seconds < 0.5 * 400 * PLAIN
    assert result.ids == plain(400).ids


def test_high_acceptance_is_no_argument_when_a_round_costs_more_than_it_commits():
    """Plain step 10 ms; a round costs 40 ms and commits 3: it must park."""
    _, seconds, engine = run(DEAR, perfect(400, most=2), 400)
    speculative = [width for width in engine.widths if width > 1]
    assert 1 <= len(speculative) <= 10
    assert seconds <= 400 * PLAIN * (1 + MAX_LOSS) + GRACE * PLAIN + 4 * PLAIN


def test_a_drafter_that_is_always_wrong_is_parked_within_the_budget():
    wrong = ScriptedDrafter(lambda history, k: [0] * k)
    _, seconds, _ = run(CHEAP, wrong, 1000)
    assert seconds <= 1000 * PLAIN * (1 + MAX_LOSS) + (GRACE + 4) * PLAIN


def test_what_one_request_learned_spares_the_next_one_the_trial():
    wrong = ScriptedDrafter(lambda history, k: [0] * k)
    clock_free = CostModel(tuple(range(1, 17)))
    run(CHEAP, wrong, 1000, clock_free)
    _, seconds, _ = run(CHEAP, wrong, 200, clock_free)
    assert seconds <= 200 * PLAIN * (1 + MAX_LOSS) + 2 * PLAIN


def test_a_slow_drafter_is_charged_for_its_own_time():
    clock = FakeClock()
    engine = FakeEngine(n_ctx=8192, eog=frozenset(), on_forward=lambda width: clock.advance(CHEAP[width]))

    def slow(history, k):
        clock.advance(0.050)
        return []

    controller = Controller(CostModel(engine.lane.widths), max_width=16)
    answer(engine, request(1000), [ScriptedDrafter(slow)], controller=controller, clock=clock)
    assert clock.now <= 1000 * PLAIN * (1 + MAX_LOSS) + GRACE * PLAIN + 0.050


def test_a_drafter_that_turns_bad_is_dropped_and_found_again_when_it_turns_good():
    ids = plain(3000).ids

    def moody(history, k):
        at = len(history) - len(PROMPT)
        right = ids[at : at + k]
        return [0] * k if 500 <= at < 1500 else right

    _, _, engine = run(CHEAP, ScriptedDrafter(moody), 3000)
    half = len(engine.widths) // 2
    assert max(engine.widths[:40]) == 16
    assert engine.widths[half - 100 : half].count(1) > 80
    assert engine.widths[-40:].count(16) > 20


def test_the_cheaper_of_two_widths_wins_even_when_it_is_wider():
    steps = {**CHEAP, 12: PLAIN * 5, 16: PLAIN * 3.5}
    _, _, engine = run(steps, perfect(600), 600)
    tail = engine.widths[-20:]
    assert tail.count(16) > tail.count(12)


def test_a_stall_does_not_change_what_a_forward_is_known_to_cost():
    costs = CostModel((1, 2))
    clock = FakeClock()
    calls = iter(range(10_000))

    def forward(width):
        clock.advance(1.0 if next(calls) == 50 else PLAIN)

    engine = FakeEngine(n_ctx=8192, eog=frozenset(), widths=(1, 2), on_forward=forward)
    answer(engine, request(100), [], controller=Controller(costs, max_width=2), clock=clock)
    known = costs.cost(1, 10)
    assert known is not None
    assert PLAIN <= known < 1.5 * PLAIN


def test_a_quick_drafter_is_asked_at_every_position_and_used_as_soon_as_it_is_right():
    ids = plain(700).ids
    asked = []

    def late(history, k):
        asked.append(at := len(history) - len(PROMPT))
        return ids[at : at + k] if at >= 500 else [0] * k

    _, _, engine = run(CHEAP, ScriptedDrafter(late, confidence=0.5), 700)
    assert len(set(range(500)) - set(asked)) < 20  # but for the plain steps that are timed
    assert max(engine.widths[-20:]) > 1


def test_a_forward_is_filled_up_where_that_is_cheaper_and_nothing_is_taken_from_its_filling():
    costs = {**CHEAP, 3: 4 * PLAIN, 4: 1.5 * PLAIN}
    model = CostModel(tuple(range(1, 17)))
    model.seed((width, 64, cost) for width, cost in costs.items())
    result, _, engine = run(costs, perfect(300, most=2), 300, model)
    assert engine.widths[20:].count(4) > 50
    assert engine.widths[20:].count(3) == 0
    assert result.ids == plain(300).ids
    assert result.outcome.timings.draft_n <= 2 * len(engine.widths)


def test_a_stall_while_a_drafter_is_asked_does_not_silence_it():
    clock = FakeClock()
    engine = FakeEngine(n_ctx=8192, eog=frozenset(), on_forward=lambda width: clock.advance(CHEAP[width]))
    ids, calls = plain(400).ids, iter(range(10_000))

    def stalling(history, k):
        clock.advance(0.200 if next(calls) == 20 else 0.00001)
        return ids[len(history) - len(PROMPT) :][:k]

    controller = Controller(CostModel(engine.lane.widths), max_width=16)
    answer(engine, request(400), [ScriptedDrafter(stalling)], controller=controller, clock=clock)
    assert engine.widths[-10:].count(16) > 5


def test_one_unlucky_forward_does_not_end_what_pays():
    clock, calls = FakeClock(), iter(range(10_000))

    def forward(width):
        clock.advance(CHEAP[width] * (50 if width > 1 and next(calls) == 3 else 1))

    engine = FakeEngine(n_ctx=8192, eog=frozenset(), on_forward=forward)
    model = CostModel(engine.lane.widths)
    model.seed((width, 64, cost) for width, cost in CHEAP.items())
    controller = Controller(model, max_width=16)
    answer(engine, request(400), [perfect(400)], controller=controller, clock=clock)
    assert sum(engine.widths[-10:]) > 100


def test_a_stall_the_first_time_a_width_is_run_is_forgotten_and_it_is_tried_again():
    # The first forward that is wider than one is a prompt block's.
    clock, speculated = FakeClock(), iter(range(10_000))

    def forward(width):
        clock.advance(CHEAP[width] * (10 if width > 1 and next(speculated) == 1 else 1))

    engine = FakeEngine(n_ctx=8192, eog=frozenset(), widths=(1, 4), on_forward=forward)
    controller = Controller(CostModel(engine.lane.widths), max_width=4, max_loss=0.2)
    answer(engine, request(250), [perfect(250)], controller=controller, clock=clock)
    assert engine.widths[-10:].count(4) > 5


def test_seeded_costs_keep_their_relation_to_the_plain_step_that_is_measured_here() -> None:
    costs = CostModel((1, 2, 4, 8))
    costs.seed([(1, 64, 0.010), (2, 64, 0.012), (8, 64, 0.036)])
    assert costs.cost(8, 100) is None  # nothing was timed here yet
    costs.observe_round(plain_round(seconds=0.020))
    assert costs.cost(8, 100) == pytest.approx(0.072)
    assert costs.cost(4, 100) == pytest.approx(0.040)  # on the line between its neighbours
    assert costs.samples(8, 100) == 0


def test_what_is_measured_here_replaces_what_was_seeded() -> None:
    costs = CostModel((1, 8))
    costs.seed([(1, 64, 0.010), (8, 64, 0.036)])
    costs.observe_round(plain_round(seconds=0.010))
    costs.observe_round(replace(plain_round(seconds=0.050), width=8))
    assert costs.cost(8, 100) == pytest.approx(0.050)


def plain_round(seconds: float) -> Round:
    return Round(100, 1, "", EMPTY, 0, 1, 0.0, seconds, seconds)


# --- several drafters, and slow ones ---------------------------------------------------------------------------


def together(drafters, n, costs=CHEAP, model=None):
    clock = FakeClock()
    engine = FakeEngine(n_ctx=8192, eog=frozenset(), on_forward=lambda width: clock.advance(costs[width]))
    model = model or CostModel(engine.lane.widths)
    result = answer(engine, request(n), drafters, controller=Controller(model, max_width=16), clock=clock)
    return result, clock.now, engine, model


def test_the_drafter_from_which_more_is_expected_is_used_whatever_the_order():
    ids = plain(600).ids
    right = ScriptedDrafter(lambda history, k: ids[len(history) - len(PROMPT) :][:k], name="right")
    wrong = ScriptedDrafter(lambda history, k: [0] * k, name="wrong")
    for order in ([right, wrong], [wrong, right]):
        _, seconds, _, model = together(order, 600)
        assert seconds < 0.5 * 600 * PLAIN
        used = [round.drafter for round in model.recent if round.proposal]
        assert used.count("right") > 0.9 * len(used)


def test_what_a_drafter_would_have_said_counts_although_another_was_used():
    ids = plain(400).ids
    good = ScriptedDrafter(lambda history, k: ids[len(history) - len(PROMPT) :][:k], name="good", confidence=0.99)
    late = ScriptedDrafter(lambda history, k: ids[len(history) - len(PROMPT) :][:3], name="late", confidence=0.6)
    _, _, _, model = together([good, late], 400)
    assert "late" not in {round.drafter for round in model.recent}
    assert model.acceptance.estimate("late", 0.6) > 0.9


def test_a_slow_drafter_is_waited_for_when_it_promises_more_than_it_takes():
    controller = controller_knowing(0.020, acceptance=1)
    terms = controller.wait_budget("far", 10, 15, controller.plain(10))
    assert terms is not None
    assert terms.k == 15
    assert 0.020 <= terms.patience <= 0.040


@pytest.mark.parametrize(("draft", "acceptance"), [(0.500, 1), (0.020, 0)])
def test_one_that_takes_too_long_or_is_wrong_is_not(draft, acceptance):
    controller = controller_knowing(draft, acceptance)
    assert controller.wait_budget("far", 10, 15, controller.plain(10)) is None


def test_a_slow_drafter_has_to_earn_what_all_who_wait_with_the_request_lose():
    controller = controller_knowing(0.020, acceptance=1)
    controller.company = Company(8)
    assert controller.wait_budget("far", 10, 15, controller.plain(10)) is None
    controller.company = Company(2)
    assert controller.wait_budget("far", 10, 15, controller.plain(10)) is not None


def test_a_proposal_at_hand_must_be_beaten_by_the_one_that_takes_time():
    controller = controller_knowing(0.020, acceptance=1)
    at_hand = controller.best_length(Proposal((1,) * 15, (0.99,) * 15), "suffix", 10)
    assert at_hand.k == 15
    assert controller.wait_budget("far", 10, 15, at_hand) is None


def test_of_a_drafter_never_asked_the_price_is_found_out_within_the_account():
    controller = controller_knowing(None, acceptance=1, gain=0.0)
    terms = controller.wait_budget("far", 10, 3, controller.plain(10))
    assert terms is not None
    assert 0 < terms.patience <= GRACE * PLAIN


def test_a_drafter_on_this_machine_pays_for_its_prompts_with_what_it_won():
    model = CostModel((1, 2))
    controller = Controller(model, max_width=2)
    assert controller.may_open("llama", 1000)
    controller.observe_opening("llama", 1000, 0.5)
    assert not controller.may_open("llama", 1000)
    model.drafts.won("llama", 1.2)
    assert controller.may_open("llama", 1000)
    assert not controller.may_open("llama", 4000)


def test_time_in_which_a_drafter_was_busy_here_is_charged_and_teaches_no_cost():
    model = CostModel((1, 2))
    controller = Controller(model, max_width=2)
    for _ in range(3):
        controller.observe_round(Round(10, 1, "", EMPTY, 0, 1, 0.0, PLAIN, PLAIN))
    controller.observe_round(Round(10, 1, "", EMPTY, 0, 1, 0.0, 5 * PLAIN, 5 * PLAIN, contended=True))
    assert controller.gain == pytest.approx(-4 * PLAIN)
    assert model.cost(1, 10) == pytest.approx(PLAIN)


def test_the_labs_controller_verifies_what_does_not_pay_in_the_second_request_too():
    model = CostModel(tuple(range(1, 17)))
    wrong = ScriptedDrafter(lambda history, k: [0] * k)
    clock = FakeClock()
    for _ in range(2):
        engine = FakeEngine(n_ctx=8192, eog=frozenset(), on_forward=lambda width: clock.advance(DEAR[width]))
        answer(engine, request(40), [wrong], controller=Eager(model, max_width=16), clock=clock)
        assert engine.widths.count(1) <= 1
