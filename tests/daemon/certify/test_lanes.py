"""Width classes, what lanes cost, and which one is taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotfish.daemon.certify.lanes import (
    Measured,
    Offer,
    Site,
    affordable,
    classes,
    common_class,
    cost_at,
    expected_seconds,
    offers,
    ranges,
    ranked,
)
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine
from pilotfish.daemon.lab.fakes.scripted_drafters import ScriptedDrafter
from pilotfish.hooks.types import EngineSetting, Lane, Parity, SamplingParams
from tests.fakes.session import Answer, answer

SHORT, LONG = Site(0, 64, 4), Site(0, 300, 4)
COSTS = {(1, 64): 0.010, (2, 64): 0.012, (4, 64): 0.016, (8, 64): 0.024}


def rows(**groups: str) -> dict[int, tuple[bytes, ...]]:
    """`rows(a="1,2", b="8")`: widths 1 and 2 give the same four rows, width 8 others."""
    return {
        int(w): tuple(f"{name}{i}".encode() for i in range(4)) for name, ws in groups.items() for w in ws.split(",")
    }


def measured(
    short: dict[int, tuple[bytes, ...]], long: dict[int, tuple[bytes, ...]] | None = None, step: float = 0.010
) -> Measured:
    sites = {SHORT: short, LONG: short if long is None else long}
    costs = {(w, at): s for at in (64, 300) for (w, _), s in COSTS.items()}
    stock = {(1, 64): step, (1, 300): step}
    return Measured(EngineSetting(), sites, costs, 0.001, stock, 0.001)


def test_widths_with_equal_rows_are_one_class_that_begins_with_its_narrowest() -> None:
    assert classes(rows(a="1,2,4", b="8,16", c="3")) == ((1, 2, 4), (3,), (8, 16))


def test_rows_are_compared_as_far_as_both_widths_went_and_nothing_is_not_equal() -> None:
    assert classes({1: [b"a", b"b", b"c"], 2: [b"a", b"b"], 3: [b"a", b"x", b"c"]}) == ((1, 2), (3,))
    assert classes({1: [b"a"], 2: []}) == ((1,), (2,))


def test_a_lane_is_what_agrees_at_every_site() -> None:
    sites = [rows(a="1,2,4,8"), rows(a="1,2,8", b="4")]
    assert common_class(sites, 1) == (1, 2, 8)
    assert common_class([rows(a="1", b="2,4,8"), rows(a="1", b="2,4", c="8")], 2) == (2, 4)


def test_a_class_that_lacks_single_steps_is_offered_as_a_padded_lane() -> None:
    setting = measured(rows(a="1", b="2,4,8"))
    assert [offer.lane.widths for offer in offers(setting, setting, ())] == [(2, 4, 8)]


def test_a_wider_class_below_a_switch_is_offered_up_to_it() -> None:
    setting = measured(rows(a="1,2,4,8"), rows(a="1", b="2,4,8"))
    found = [(offer.lane.widths, offer.lane.max_context) for offer in offers(setting, setting, (256,))]
    assert ((1, 2, 4, 8), 256) in found
    assert ((2, 4, 8), None) in found


def test_a_lane_whose_single_steps_are_stocks_has_stock_parity() -> None:
    stock = measured(rows(s="1"))
    same, other = measured(rows(s="1,2")), measured(rows(o="1,2"))
    assert [offer.lane.parity for offer in offers(same, stock, ())] == ["stock"]
    assert [offer.lane.parity for offer in offers(other, stock, ())] == ["lane"]


def test_a_setting_in_trouble_offers_nothing() -> None:
    assert list(offers(Measured(EngineSetting(), trouble="refused"), measured(rows(a="1")), ())) == []


def test_wider_rounds_that_cost_less_per_expected_token_lower_the_price() -> None:
    setting = measured({})
    narrow, wide = (expected_seconds(Lane("x", widths), setting) for widths in ((1, 2), (1, 2, 4, 8)))
    assert wide < narrow < expected_seconds(Lane("x", (1,)), setting)


def test_past_the_lanes_end_only_plain_steps_are_counted_on() -> None:
    ended = expected_seconds(Lane("x", (1, 8), max_context=32), Measured(EngineSetting(), {}, COSTS))
    assert ended == pytest.approx(COSTS[1, 64])


def test_costs_between_measured_widths_lie_on_the_line() -> None:
    assert cost_at(COSTS, 3, 64) == pytest.approx(0.014)
    assert cost_at(COSTS, 4, 64) == 0.016


def test_a_lane_with_dearer_plain_steps_than_stock_is_refused() -> None:
    dear, fair = measured(rows(a="1,2"), step=0.008), measured(rows(a="1,2"), step=0.0098)
    assert not affordable(next(offers(dear, dear, ())), dear)
    assert affordable(next(offers(fair, fair, ())), fair)


def test_a_padded_lane_is_priced_at_its_narrowest_width() -> None:
    padded = measured(rows(a="1", b="2,4,8"))
    assert not affordable(next(offers(padded, padded, ())), padded)  # 12 ms for a step that stock takes 10 for
    cheap = measured(rows(a="1", b="2,4,8"), step=0.0118)
    assert affordable(next(offers(cheap, cheap, ())), cheap)


def test_where_blocks_are_taken_back_that_is_priced_and_a_lane_that_cannot_gain_is_refused() -> None:
    cuts = measured(rows(a="1,2,4"))
    lane = next(offers(cuts, cuts, ())).lane
    cheap, dear = replace(cuts, going_back=0.0001), replace(cuts, going_back=1.0)
    assert expected_seconds(lane, cuts) < expected_seconds(lane, cheap) < expected_seconds(Lane("x", (1,)), cuts)
    assert affordable(next(offers(cheap, cheap, ())), cheap)
    assert not affordable(next(offers(dear, dear, ())), dear)
    padded = replace(measured(rows(a="1", b="2,4"), step=0.0118), going_back=0.0)
    assert list(offers(padded, padded, ())) == []


def test_a_lane_with_slow_prompts_is_refused() -> None:
    setting = measured(rows(a="1,2"))
    slow = Measured(setting.setting, setting.rows, setting.costs, 0.01, setting.stock_costs, 0.001)
    assert not affordable(next(offers(slow, slow, ())), slow)


def test_the_lowest_expected_time_wins_and_stocks_ids_among_equals() -> None:
    fast, near = Offer(Lane("fast", parity=Parity.LANE), 0.5, 1.0), Offer(Lane("near", parity=Parity.STOCK), 0.51, 1.0)
    slow = Offer(Lane("slow", parity=Parity.STOCK), 0.9, 1.0)
    assert [offer.lane.name for offer in ranked([slow, fast, near])] == ["near", "fast", "slow"]


def test_of_lanes_with_one_price_one_that_ends_early_comes_last() -> None:
    whole = Offer(Lane("whole", (1, 2, 3), EngineSetting()), 0.95, 1.0)
    ends = Offer(Lane("ends", (1, 2, 3, 4, 8), EngineSetting(), max_context=256), 0.94, 1.0)
    assert [offer.lane.name for offer in ranked([ends, whole])] == ["whole", "ends"]


def test_a_lane_knows_how_wide_a_forward_may_be_near_its_end() -> None:
    lane = Lane("x", (1, 2, 4, 8), max_context=100)
    assert [lane.widest_at(position) for position in (10, 93, 94, 97, 100, 5000)] == [8, 8, 4, 4, 1, 1]
    assert Lane("x", (2, 4), max_context=100).widest_at(5000) == 2
    assert Lane("x", (1, 4)).widest_at(5000) == 4


def greedy(engine: FakeEngine, drafted: bool) -> Answer:
    request = GenerationRequest((5, 9, 3, 7), SamplingParams(temperature=0), n_predict=60)
    plain = answer(FakeEngine(eog=frozenset()), request).ids
    perfect = ScriptedDrafter(lambda history, k: plain[len(history) - 4 :][:k])
    return answer(engine, request, [perfect] if drafted else [])


@pytest.mark.parametrize("drafted", [False, True])
def test_a_padded_lane_never_runs_a_forward_narrower_than_its_first_width(drafted: bool) -> None:
    engine = FakeEngine(widths=range(2, 17), eog=frozenset())
    assert greedy(engine, drafted).ids == greedy(FakeEngine(eog=frozenset()), False).ids
    assert min(engine.widths) >= 2
    assert max(engine.widths) == (16 if drafted else 2)


def test_past_the_lanes_end_every_forward_has_the_narrowest_width() -> None:
    engine = FakeEngine(eog=frozenset())
    engine.lane = Lane("ends", tuple(range(1, 17)), max_context=40)
    plain = greedy(FakeEngine(eog=frozenset()), False)
    result = greedy(engine, True)
    assert result.ids == plain.ids
    reached = 4
    for width, (_, committed) in zip(engine.widths, result.controller.rounds, strict=True):
        assert width == 1 or reached - 1 + width <= 40
        reached += committed
    assert max(engine.widths) == 16
    assert engine.widths[-20:] == [1] * 20


def test_ranges_are_for_people() -> None:
    assert ranges((1, 2, 3, 7, 9, 10)) == "1-3, 7, 9-10"
