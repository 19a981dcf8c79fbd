"""Where an answer ends: at an end token, a stop string, the budget, the context, a time limit, or with its reader."""

from __future__ import annotations

import pytest

from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.daemon.lab.fakes.fake_engine import EOS, FakeEngine
from pilotfish.daemon.lab.fakes.scripted_drafters import NoisyDrafter, ScriptedDrafter
from pilotfish.hooks.errors import ContextOverflow
from tests.daemon.core.asking import PROMPT, replay, request, truth
from tests.fakes.session import answer


def test_a_drafted_end_token_ends_nothing_unless_the_target_picks_it():
    engine = FakeEngine(script=[5, 6, EOS])
    drafted = answer(engine, request(), [ScriptedDrafter(lambda history, k: [5, EOS, 7])])
    assert drafted.ids == [5, 6, EOS]
    assert drafted.outcome.stop_type == "eos"


def test_nothing_after_an_end_token_is_picked_even_when_it_was_proposed():
    engine = FakeEngine(script=[9, 107, 9], n_vocab=128, eog=frozenset({2, 107}))
    drafted = answer(engine, request(), [ScriptedDrafter(lambda history, k: [9, 107, 9])])
    assert drafted.ids == [9, 107]
    assert drafted.text == "9 "


def test_the_budget_is_kept_in_the_middle_of_an_accepted_block():
    plain = answer(FakeEngine(), request(40))
    drafted = answer(FakeEngine(), request(10), [ScriptedDrafter(replay(plain.ids))], most=7)
    assert drafted.ids == plain.ids[:10]
    assert drafted.outcome.stop_type == "limit"


def test_a_budget_of_zero_evaluates_the_prompt_and_nothing_else():
    engine = FakeEngine()
    nothing = answer(engine, request(0))
    assert nothing.ids == []
    assert engine.widths == []
    assert nothing.outcome.stop_type == "limit"
    assert nothing.outcome.timings.prompt_n == len(PROMPT)


def test_a_stop_string_completed_in_the_middle_of_an_accepted_block_ends_there():
    pieces = {2: b"one ", 3: b"E", 4: b"ND", 6: b" two"}
    engine = FakeEngine(script=[2, 3, 4, 6, 6], pieces=pieces)
    asked = request(stop=("END",))
    drafted = answer(engine, asked, [ScriptedDrafter(lambda history, k: [2, 3, 4, 6, 6])])
    assert (drafted.ids, drafted.text) == ([2, 3, 4], "one ")
    assert (drafted.outcome.stop_type, drafted.outcome.stopping_word) == ("word", "END")


def test_the_context_ends_the_answer_and_says_so():
    engine = FakeEngine(n_ctx=20)
    drafted = answer(engine, request(-1), [NoisyDrafter(truth(engine), wrong=0.2, n_vocab=32)])
    assert len(PROMPT) + len(drafted.ids) == 20
    assert drafted.outcome.stop_type == "limit"
    assert drafted.outcome.truncated


def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers():
    with pytest.raises(ContextOverflow, match=r"4 tokens.*4 tokens") as caught:
        answer(FakeEngine(n_ctx=4), request())
    assert (caught.value.n_prompt_tokens, caught.value.n_ctx) == (4, 4)


def test_a_cancelled_request_stops_within_one_prefill_block():
    blocks = []
    engine = FakeEngine(on_forward=blocks.append)
    gone = answer(engine, request(prompt=tuple([5] * 200)), cancelled=lambda: len(blocks) >= 2)
    assert len(blocks) == 2
    assert (gone.ids, gone.outcome.stop_type) == ([], "none")
    assert engine.open_sessions == 0


def test_a_cancelled_request_stops_within_one_round():
    engine = FakeEngine()
    gone = answer(engine, request(100), cancelled=lambda: len(engine.widths) >= 3)
    assert len(gone.ids) == 3


def test_a_line_break_after_the_time_limit_ends_the_answer():
    """As llama-server's t_max_predict_ms: measured from the first token, and noticed at a line break only."""
    clock = FakeClock()
    pieces = {7: b"line\n"}
    engine = FakeEngine(script=[5, 7, 5, 5, 7, 5, 7, 5], pieces=pieces, on_forward=lambda width: clock.advance(0.1))
    found = answer(engine, request(8, line_ms=250), clock=clock)
    assert found.ids == [5, 7, 5, 5, 7]
    assert found.outcome.stop_type == "limit"
    assert answer(FakeEngine(script=[5, 7, 5], pieces=pieces), request(3, line_ms=10)).ids == [5, 7, 5]
