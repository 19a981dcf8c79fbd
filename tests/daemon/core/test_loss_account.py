"""What may be lost, whatever drafters and costs do, and what was forgone, on a clock that only forwards move."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pilotfish.daemon.core.controller import LOOK, Controller
from pilotfish.daemon.core.costs import KEEP_CURVE, CostModel, Round
from pilotfish.daemon.core.loss_account import GRACE, MAX_LOSS, LossAccount, Stake, afford_together
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine
from pilotfish.daemon.lab.fakes.scripted_drafters import ScriptedDrafter
from pilotfish.hooks.types import EMPTY, Proposal
from tests.daemon.core.controlled import CHEAP, DEAR, PLAIN, PROMPT, controller_knowing, perfect, plain, request, run
from tests.fakes.session import answer


@settings(deadline=None, max_examples=100)
@given(
    slope=st.floats(0.0, 2.0),
    steps=st.lists(st.floats(0.5, 2.0), min_size=16, max_size=16),
    right=st.floats(0, 1),
    confidence=st.floats(0, 1),
    draft_ms=st.sampled_from([0.0, 0.0, 0.1, 5.0]),
    n=st.integers(50, 600),
    seed=st.integers(0, 999),
    certified=st.booleans(),
)
@example(  # at the end of the answer there is no room for the forward of 4 that would be cheaper than one of 3
    slope=0.0, steps=[1.0, 1.0, 2.0, *[1.0] * 13], right=0, confidence=0, draft_ms=5.0, n=103, seed=0, certified=True
)
def test_the_loss_stays_within_the_account_whatever_costs_and_acceptance_are(
    slope, steps, right, confidence, draft_ms, n, seed, certified
):
    """Random cost curves with steps, random acceptance, any honesty of the drafter, any drafting time.

    With a certificate's costs the bound is the account's own; without, one round may cost more than it was taken for.
    """
    costs = {1: PLAIN, **{w: PLAIN * max(1.0, (1 + slope * (w - 1)) * steps[w - 1]) for w in range(2, 17)}}
    surprise = draft_ms / 1000 + (0.0 if certified else max(costs.values()))
    clock = FakeClock()
    engine = FakeEngine(n_ctx=8192, eog=frozenset(), on_forward=lambda width: clock.advance(costs[width]))
    rng = random.Random(seed)
    undrafted, plain_seconds, _ = run(costs, None, n)
    ids = undrafted.ids

    def guess(history, k):
        clock.advance(draft_ms / 1000)
        at = len(history) - len(PROMPT)
        return [token if rng.random() < right else 0 for token in ids[at : at + k]]

    model = CostModel(engine.lane.widths)
    if certified:
        model.seed((width, 64, seconds) for width, seconds in costs.items())
    controller = Controller(model, max_width=16)
    drafter = ScriptedDrafter(guess, confidence=confidence)
    result = answer(engine, request(n), [drafter], controller=controller, clock=clock)
    assert result.ids == ids
    credit = MAX_LOSS * n * PLAIN + max(costs.values())  # at most: what a block that was followed would have won
    assert clock.now <= plain_seconds + MAX_LOSS * n * PLAIN + GRACE * PLAIN + credit + surprise + 1e-9


@pytest.mark.parametrize("n", [50, 100, 400])
def test_a_drafter_that_is_only_right_where_nothing_is_verified_cannot_run_up_debts(n):
    ids, (_, plain_seconds, _), clock = plain(n + 20).ids, run(DEAR, None, n), FakeClock()
    engine = FakeEngine(n_ctx=8192, eog=frozenset(), on_forward=lambda width: clock.advance(DEAR[width]))
    model = CostModel(engine.lane.widths)
    model.seed((width, 64, cost) for width, cost in DEAR.items())
    controller = Controller(model, max_width=16)

    def sly(history, k):
        at = len(history) - len(PROMPT)
        wrong = 1 if controller.account.affords(DEAR[16] - PLAIN) else 0
        return [(token + wrong) % engine.n_vocab for token in ids[at : at + k]]

    answer(engine, request(n), [ScriptedDrafter(sly)], controller=controller, clock=clock)
    assert engine.widths.count(16) > 1
    assert clock.now <= plain_seconds + 2 * MAX_LOSS * n * PLAIN + GRACE * PLAIN + DEAR[16]


def in_debt(seconds: float = 0.5) -> CostModel:
    """Of a model whose requests have lost a little more than they may."""
    model = CostModel(tuple(range(1, 17)))
    model.seed((width, 64, cost) for width, cost in CHEAP.items())
    model.plain_total = seconds / MAX_LOSS
    model.gain = -seconds - 5 * PLAIN
    return model


def test_an_account_in_debt_is_paid_back_by_drafts_that_turn_out_right():
    _, seconds, engine = run(CHEAP, perfect(400), 400, in_debt())
    assert max(engine.widths) == 16
    assert seconds < 0.6 * 400 * PLAIN


def test_in_debt_it_is_seldom_looked_at_drafts_and_none_is_verified_that_is_wrong():
    ids, asked = plain(220).ids, []

    def wrong(history, k):
        asked.append(at := len(history) - len(PROMPT))
        return [(token + 1) % FakeEngine().n_vocab for token in ids[at : at + k]]

    _, _, engine = run(CHEAP, ScriptedDrafter(wrong), 200, in_debt())
    assert 10 < len(asked) <= 200 / LOOK + 1
    assert max(engine.widths[1:]) == 1


def test_a_drafter_that_is_right_only_until_it_is_believed_loses_what_was_forgone_and_no_more():
    """In debt it is right for 24 tokens, then wrong for as many, and so on."""
    ids = plain(600).ids

    def fickle(history, k):
        at = len(history) - len(PROMPT)
        return ids[at : at + min(k, 24 - at % 24)] if at // 24 % 2 == 0 else [0] * k

    _, seconds, _ = run(CHEAP, ScriptedDrafter(fickle, confidence=0.9), 600, in_debt())
    assert seconds <= 600 * PLAIN * (1 + 2 * MAX_LOSS) + GRACE * PLAIN + CHEAP[16]


def test_requests_that_lose_do_not_each_lose_a_grace_of_their_own():
    model, seconds = CostModel(tuple(range(1, 17))), 0.0
    model.seed((width, 64, cost) for width, cost in CHEAP.items())
    for i in range(10):
        wrong = ScriptedDrafter(lambda history, k: [0] * k, name=f"wrong {i}")  # of whom nothing is known yet
        seconds += run(CHEAP, wrong, 60, model)[1] - run(CHEAP, None, 60)[1]
    assert seconds <= MAX_LOSS * 10 * 60 * PLAIN + GRACE * PLAIN + 1e-9


def test_what_requests_saved_makes_up_for_what_others_lost():
    model = CostModel(tuple(range(1, 17)))
    model.seed((width, 64, cost) for width, cost in CHEAP.items())
    run(CHEAP, ScriptedDrafter(lambda history, k: [0] * k, name="wrong"), 60, model)
    lost = model.gain
    assert lost < 0
    run(CHEAP, perfect(400), 400, model)
    assert model.gain > 0


def test_nobody_is_waited_for_on_credit():
    controller = controller_knowing(0.100, acceptance=1, gain=-0.020)
    assert controller.wait_budget("far", 10, 15, controller.plain(10)) is None


def test_what_was_forgone_is_no_reason_to_wait_and_pays_for_asking_in_vain():
    controller = controller_knowing(0.002, acceptance=1, gain=-0.021)
    block = tuple(range(8))
    controller.forgo([("far", Proposal(block, (1.0,) * 8))], 10, 15)
    controller.account.committed(block, verified=False)
    credit = controller.describe()["credit"]
    assert credit > 2 * PLAIN
    assert controller.wait_budget("far", 10, 15, controller.plain(10)) is None
    assert controller.plan(10, 15) > 0
    controller.observe_round(Round(10, 1, "", EMPTY, 0, 1, PLAIN, PLAIN, 2 * PLAIN))
    assert controller.describe()["credit"] == pytest.approx(credit - PLAIN)


def test_a_stall_once_is_no_measure_of_what_a_block_can_lose():
    costs = CostModel((1, 2, 8, 16))
    for width, seconds in ((1, PLAIN), (1, PLAIN), (2, CHEAP[2]), (2, CHEAP[2]), (2, CHEAP[2]), (16, 3.0)):
        costs.observe_round(Round(10, width, "", EMPTY, 0, 1, 0.0, seconds, seconds))
    controller = Controller(costs, max_width=16)
    for _ in range(500):  # until the stall is not believed any more
        controller.observe_round(Round(10, 1, "", EMPTY, 0, 1, 0.0, PLAIN, PLAIN))
    controller.account.gain = costs.gain = -50 * PLAIN
    for block, committed in (((1,) * 15, (2,)), ((3,), (3,))):
        controller.forgo([("d", Proposal(block, (1.0,) * len(block)))], 10, 15)
        controller.account.committed(committed, verified=False)
    assert controller.describe()["credit"] > 0
    assert not controller.account.affords(0.0)


@pytest.mark.parametrize("looked", [0, 1])
def test_a_width_that_stops_being_worth_it_can_have_been_followed(looked):
    costs = CostModel((1, 2, 3, 4))
    for width, seconds in ((1, 1.0), (1, 1.0), (1, 1.0), (3, 1.3), (3, 1.3), (3, 1.3), (4, 1.1), (4, 1.1)):
        costs.observe_forward(width, 10, 1, seconds)
    controller = Controller(costs, max_width=4)
    for _ in range(1 + looked):
        costs.curve(10)
    costs.observe_forward(4, 10, 1, 1.1)  # and now that is sure: 3 are left out once it is looked at anew
    for _ in range(KEEP_CURVE):
        controller.forgo([("d", Proposal((1, 2), (1.0, 1.0)))], 10, 3)
        controller.account.committed((1, 2), verified=False)
    assert controller.describe()["credit"] > 0


def with_credit() -> Controller:
    """In debt, after a block that was followed and would have won."""
    controller = controller_knowing(None, acceptance=1, gain=-0.021)
    controller.forgo([("far", Proposal((1,) * 8, (1.0,) * 8))], 10, 15)
    controller.account.committed((1,) * 8, verified=False)
    return controller


def test_what_was_forgone_is_staked_only_where_a_forwards_cost_is_known():
    account = with_credit().account
    assert account.affords(PLAIN)
    assert not account.affords(PLAIN, known=False)


def test_a_block_is_followed_no_longer_once_another_was_verified():
    """Or its tokens would count twice: as won by the one, and as forgone with the other."""
    controller = with_credit()
    credit = controller.account.forgone.credit
    controller.forgo([("far", Proposal((1,) * 8, (1.0,) * 8))], 10, 15)
    controller.account.committed((1,) * 8, verified=True)
    assert not controller.account.forgone.following
    assert controller.account.forgone.credit == credit


def test_what_the_model_may_lose_is_staked_once_and_what_a_request_was_forgone_is_its_own():
    model, most = CostModel((1, 2)), GRACE * PLAIN
    accounts = [LossAccount(model, 0.0), LossAccount(model, 0.0)]
    for account in accounts:
        account.plain_step = PLAIN

    def afford(seconds: float, *, waited: float = 0.0, known: bool = True) -> bool:
        stakes = [Stake.of(account, 0.0, waited) for account in accounts]
        return afford_together(stakes, seconds, accounts[0].of_model - 2 * waited, known=known)

    assert all(account.affords(most) for account in accounts)
    assert afford(most / 2)
    assert not afford(most / 2, waited=most / 4)
    assert not afford(most)
    accounts[0].forgone.follow((1,), (0.0, most), most)
    accounts[0].forgone.committed((1,))
    assert afford(most)
    assert not afford(most, known=False)
