"""A run promotes what passed in it, and takes back what does not pass any more."""

from __future__ import annotations

from dataclasses import replace

from pilotfish.daemon.config.types import Drafters
from pilotfish.daemon.drafters.promotions import Promotions, PromotionSubject
from pilotfish.daemon.lab.fakes import FakeEngine
from pilotfish.daemon.lab.receipts.receipt_types import RunVerdict
from pilotfish.daemon.lab.validation.promoting import settle_promotions
from tests.daemon.lab.fake_subject import subject
from tests.daemon.lab.receipts.receipts import a_receipt

LOADED = subject(FakeEngine())
PLACE = PromotionSubject.of(LOADED.pin, LOADED.engine.engine, LOADED.engine.lane)


def with_verdict(verdict, **settings):
    receipt = a_receipt()
    judgements = tuple(replace(one, verdict=verdict) for one in receipt.judgements)
    return replace(receipt, judgements=judgements, settings=replace(receipt.settings, **settings))


def test_the_last_run_decides(tmp_path):
    promotions = Promotions(tmp_path)
    (said,) = settle_promotions(promotions, LOADED, with_verdict(RunVerdict.PASSED), "here")
    assert said.startswith("suffix is promoted for ")
    assert said.endswith(" in lanes that have the widths 3")
    assert promotions.among(PLACE, Drafters()) == ("suffix",)
    (said,) = settle_promotions(promotions, LOADED, with_verdict(RunVerdict.FAILED), "here")
    assert "is no more" in said
    assert promotions.among(PLACE, Drafters()) == ()


def test_a_promotion_rests_on_the_widths_that_the_drafters_rounds_had(tmp_path):
    promotions = Promotions(tmp_path)
    list(settle_promotions(promotions, LOADED, with_verdict(RunVerdict.PASSED), "here"))
    for widths, holds in (((1, 3), True), ((1, 2, 4), False)):
        lane = replace(LOADED.engine.lane, widths=widths)
        assert promotions.promoted(PromotionSubject.of(LOADED.pin, LOADED.engine.engine, lane), "suffix", {}) is holds


def test_a_run_in_a_lane_without_these_widths_takes_it_back_only_where_ids_differed(tmp_path):
    promotions = Promotions(tmp_path)
    list(settle_promotions(promotions, LOADED, with_verdict(RunVerdict.PASSED), "here"))
    narrow = subject(FakeEngine(widths=(1, 2)))
    missed = replace(with_verdict(RunVerdict.NOT_PROMOTED), verdict=RunVerdict.NOT_PROMOTED)
    assert list(settle_promotions(promotions, narrow, missed, "here")) == []
    assert promotions.among(PLACE, Drafters()) == ("suffix",)
    failed = replace(with_verdict(RunVerdict.FAILED), verdict=RunVerdict.FAILED)
    (said,) = settle_promotions(promotions, narrow, failed, "here")
    assert "is no more" in said
    assert promotions.among(PLACE, Drafters()) == ()


def test_a_run_outside_any_lane_promotes_nothing(tmp_path):
    promotions = Promotions(tmp_path)
    assert list(settle_promotions(promotions, LOADED, with_verdict(RunVerdict.PASSED, unsafe_lane=True), "")) == []
    assert promotions.among(PLACE, Drafters()) == ()
