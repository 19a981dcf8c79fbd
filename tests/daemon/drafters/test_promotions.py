"""A promotion holds for exactly what was validated."""

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
    found.promote(SUBJECT, "two", {"model": "m"}, "a receipt")
    return found


def test_only_what_was_promoted_is_allowed(promotions):
    assert promotions.among(SUBJECT, BOTH) == ("two",)


def test_other_settings_of_a_drafter_are_another_one(promotions):
    assert promotions.among(SUBJECT, replace(BOTH, tables={"two": {"model": "n"}})) == ()


def test_other_weights_builds_widths_and_settings_are_others(promotions):
    pin, engine, lane = fake_pin(), ENGINE.engine, ENGINE.lane
    moved = replace(pin, weights=(WeightPin("sha256:" + "1" * 64, pin.path, 0),))
    others = [
        (moved, engine, lane),
        (pin, replace(engine, fingerprint="other"), lane),
        (pin, engine, replace(lane, widths=(1, 2))),
        (pin, engine, replace(lane, setting=EngineSetting(cache_type_k="bf16"))),
    ]
    assert [promotions.among(PromotionSubject.of(*other), BOTH) for other in others] == [()] * len(others)


def test_words_about_a_lane_make_no_other_one(promotions):
    lane: Lane = replace(ENGINE.lane, name="x", reason="y")
    assert promotions.among(PromotionSubject.of(fake_pin(), ENGINE.engine, lane), BOTH) == ("two",)


def test_it_can_be_taken_back_once(promotions):
    assert promotions.withdraw(SUBJECT, "two", {"model": "m"})
    assert not promotions.withdraw(SUBJECT, "two", {"model": "m"})
    assert promotions.among(SUBJECT, BOTH) == ()
