"""A promotion holds for what was validated, in every lane of its setting that has the widths that it rests on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotfish.daemon.config.types import Drafters
from pilotfish.daemon.drafters.promotions import Promotions, PromotionSubject
from pilotfish.daemon.lab.fakes import FakeEngine, fake_pin
from pilotfish.hooks.types import EngineSetting, Lane, WeightPin

ENGINE = FakeEngine()
SUBJECT = PromotionSubject.of(fake_pin(), ENGINE.engine, ENGINE.lane)
BOTH = Drafters(("one", "two"), {"two": {"model": "m"}})


@pytest.fixture
def promotions(tmp_path):
    found = Promotions(tmp_path)
    found.promote(SUBJECT, "two", {"model": "m"}, "a receipt", [(1, 2, 3), (1, 5)])
    return found


def test_only_what_was_promoted_is_allowed(promotions):
    assert promotions.among(SUBJECT, BOTH) == ("two",)


def test_other_settings_of_a_drafter_are_another_one(promotions):
    assert promotions.among(SUBJECT, replace(BOTH, tables={"two": {"model": "n"}})) == ()


def test_other_weights_builds_and_settings_are_others(promotions):
    pin, engine, lane = fake_pin(), ENGINE.engine, ENGINE.lane
    moved = replace(pin, weights=(WeightPin("sha256:" + "1" * 64, pin.path, 0),))
    others = [
        (moved, engine, lane),
        (pin, replace(engine, fingerprint="other"), lane),
        (pin, engine, replace(lane, setting=EngineSetting(cache_type_k="bf16"))),
    ]
    assert [promotions.among(PromotionSubject.of(*other), BOTH) for other in others] == [()] * len(others)


def test_what_was_measured_here_says_nothing_of_a_model_over_far_ends_nor_the_other_way_round(promotions):
    spread, elsewhere = (
        PromotionSubject.of(fake_pin(), ENGINE.engine, ENGINE.lane, far_ends) for far_ends in (("a:1",), ("b:1",))
    )
    assert promotions.among(spread, BOTH) == ()
    promotions.promote(spread, "one", {}, "a receipt", [(1, 2)])
    assert [promotions.among(where, BOTH) for where in (spread, elsewhere, SUBJECT)] == [("one",), (), ("two",)]


@pytest.mark.parametrize(
    ("lane", "holds"),
    [
        ({"name": "x", "reason": "y"}, True),
        ({"max_context": 512, "prefill_block": 64, "exact_cache": True}, True),
        ({"widths": (1, 2, 3)}, True),
        ({"widths": (1, 5, 9)}, True),
        ({"widths": (1, 2, 3, 4, 5, 6)}, True),
        ({"widths": (1, 2)}, False),
        ({"widths": (1, 3)}, False),
    ],
)
def test_lanes_of_one_setting_differ_in_what_was_compared_and_need_the_widths_of_one_length(promotions, lane, holds):
    other: Lane = replace(ENGINE.lane, **lane)
    found = promotions.among(PromotionSubject.of(fake_pin(), ENGINE.engine, other), BOTH)
    assert found == (("two",) if holds else ())


def test_a_lane_whose_plain_steps_are_padded_is_another(promotions):
    padded = replace(ENGINE.lane, widths=(2, 3, 5))
    subject = PromotionSubject.of(fake_pin(), ENGINE.engine, padded)
    promotions.promote(subject, "one", {}, "a receipt", [(2, 3)])
    assert promotions.among(subject, BOTH) == ("one",)
    assert promotions.among(SUBJECT, BOTH) == ("two",)


def test_a_file_that_cannot_be_read_promotes_nothing(promotions):
    (file,) = promotions.folder.iterdir()
    file.write_text("{")
    assert promotions.among(SUBJECT, BOTH) == ()


def test_it_can_be_taken_back_once(promotions):
    assert promotions.withdraw(SUBJECT, "two", {"model": "m"})
    assert not promotions.withdraw(SUBJECT, "two", {"model": "m"})
    assert promotions.among(SUBJECT, BOTH) == ()
