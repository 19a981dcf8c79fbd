"""What is recommended, and when nothing is."""

from __future__ import annotations

from dataclasses import replace

from pilotfish.daemon.lab.approaches.advice import advice_on
from pilotfish.daemon.lab.approaches.approach import ApproachResult

GOOD = ApproachResult("suffix", "", 130.0, 100.0, 1_003_000_000, 1_000_000_000, 0.9, 4, 4)


def test_the_fastest_exact_approach_is_taken_with_its_price():
    slower = replace(GOOD, title="llama", rate_with=120.0)
    advice = advice_on([slower, GOOD])
    assert advice.take == "suffix"
    assert advice.reason == "130.0 tokens/s, the fastest plain decoding gives 100.0: 1.30x, for 3.0 MB more of memory"


def test_one_that_changed_an_answer_is_none():
    assert advice_on([GOOD, replace(GOOD, title="wrong", rate_with=900.0, equal=3)]).take == "suffix"
    advice = advice_on([replace(GOOD, equal=3)])
    assert (advice.take, "no approach gave every answer" in advice.reason) == ("", True)


def test_a_gain_within_the_scatter_is_none():
    advice = advice_on([replace(GOOD, rate_with=103.0)])
    assert advice.take == ""
    assert advice.reason.endswith("1.03x is not worth it")


def test_it_must_beat_the_fastest_plain_decoding_not_only_its_own():
    stock = replace(GOOD, title="stock ngram", rate_with=90.0, rate_without=128.0)
    assert advice_on([GOOD, stock]).take == ""


def test_what_an_approach_gained_without_a_draft_is_scatter():
    advice = advice_on([replace(GOOD, acceptance=None)])
    assert (advice.take, "no approach verified a draft" in advice.reason) == ("", True)


def test_without_a_measurement_nothing_is_recommended():
    assert advice_on([ApproachResult("suffix", "", trouble="it does not load")]).reason == "nothing could be measured"
