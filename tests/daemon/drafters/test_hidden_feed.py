"""Drafters on the target's activations: what they are given, and why they are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pilotfish.daemon.drafters.hidden_feed import hidden_refusal, hidden_shape_of
from pilotfish.daemon.drafters.pool import DrafterPool
from pilotfish.daemon.lab.conformance.drafter_checks import is_a_drafter
from pilotfish.daemon.lab.conformance.harness import Harness, Nonconformance
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine, fake_activation, fake_pin
from pilotfish.daemon.lab.fakes.fake_vocabulary import FakeVocabulary
from pilotfish.daemon.lab.fakes.scripted_drafters import HiddenDrafter, ScriptedDrafter
from pilotfish.hooks.hidden import HiddenShape
from pilotfish.hooks.protocols import AsksForHidden, GivesHidden, HasHidden, TakesHidden
from pilotfish.hooks.types import Placement, SamplingParams, TokenizerPin
from tests.daemon.core.asking import PROMPT, request, truth
from tests.fakes.session import answer, registry_with

SHAPE = HiddenShape(layers=3, width=2)


def mixed(history: Any, k: int) -> list[int]:
    """What comes next, but for every third token."""
    right = truth(FakeEngine())
    found: list[int] = []
    for i in range(k):
        token = right([*history, *found])
        found.append((token + 1) % 32 if i % 3 == 2 else token)
    return found


@pytest.mark.parametrize("placement", [Placement.INLINE, Placement.ENGINE_THREAD])
def test_it_is_given_every_committed_token_once_and_the_ids_stay(placement):
    plain = answer(FakeEngine(), request(40))
    drafter = HiddenDrafter(mixed, placement=placement)
    drafted = answer(FakeEngine(hidden=SHAPE), request(40), [drafter])
    assert drafted.ids == plain.ids
    assert not drafted.outcome.report.dropped
    assert drafted.outcome.timings.draft_n_accepted > 0
    (session,) = drafter.sessions
    history = [*PROMPT, *drafted.ids]
    position = 0
    for states in session.states:
        assert (states.first, states.layers, states.width) == (position, (0, 2), 2)
        found = memoryview(states.data).cast("B").cast("f", (states.tokens, 2, 2)).tolist()
        expected = enumerate(history[position : states.end], position)
        assert found == [[[fake_activation(token, at, layer)] * 2 for layer in (0, 2)] for at, token in expected]
        position = states.end
    assert position >= len(PROMPT)


def test_a_prefix_from_an_earlier_request_is_left_out():
    engine, drafter = FakeEngine(hidden=SHAPE), HiddenDrafter(mixed)
    answer(engine, request(10), [drafter])
    answer(engine, request(10), [drafter])
    assert [session.states[0].first for session in drafter.sessions] == [0, len(PROMPT) - 1]


def test_what_asks_and_what_gives_is_told_by_what_it_has():
    engine, drafter = FakeEngine(hidden=SHAPE), HiddenDrafter()
    target = engine.open(PROMPT, SamplingParams())
    assert isinstance(engine, HasHidden)
    assert isinstance(target, GivesHidden)
    assert isinstance(drafter, AsksForHidden)
    assert isinstance(drafter.open(fake_pin(), PROMPT), TakesHidden)
    assert not isinstance(ScriptedDrafter(), AsksForHidden)
    assert (hidden_shape_of(engine), hidden_shape_of(FakeEngine())) == (SHAPE, None)


@pytest.mark.parametrize(
    ("drafter", "shape", "why"),
    [
        (HiddenDrafter(), None, "hidden asks for the target's activations (layers 0, 2), and the engine fake does not"),
        (HiddenDrafter(hidden_layers=(4,)), SHAPE, "(layers 4), and the target has 3 layers"),
        (HiddenDrafter(placement=Placement.THREAD), SHAPE, "its placement must be INLINE or ENGINE_THREAD"),
        (HiddenDrafter(placement=Placement.REMOTE), SHAPE, "its placement must be INLINE or ENGINE_THREAD"),
        (HiddenDrafter(), SHAPE, ""),
        (HiddenDrafter(hidden_layers=()), None, ""),
        (ScriptedDrafter(), None, ""),
    ],
)
def test_a_drafter_that_asks_in_vain_is_told_why(drafter, shape, why):
    found = hidden_refusal(drafter, shape, "fake")
    assert why in found
    assert bool(found) == bool(why)


def test_one_with_a_vocabulary_of_its_own_is_refused():
    drafter = HiddenDrafter()
    drafter.vocabulary = FakeVocabulary(TokenizerPin("other", "gpt2", 40))
    assert "a vocabulary of its own" in hidden_refusal(drafter, SHAPE, "fake")


def test_the_status_names_it_and_the_engine_and_answers_go_on_without_it():
    drafter = HiddenDrafter()
    pool = DrafterPool(fake_pin(), FakeVocabulary(fake_pin().tokenizer), 32, engine="llama")
    registry = registry_with(drafter)
    pool.use(registry, ["hidden"])
    assert pool.guards(registry, PROMPT, math.inf) == []
    told = pool.describe()["hidden"]
    assert told["state"] == "refused"
    assert "hidden asks for the target's activations" in told["about"]
    assert "the engine llama does not tell them" in told["about"]
    assert not drafter.sessions


def test_a_target_that_gives_none_costs_its_proposals_only():
    plain = answer(FakeEngine(), request(10))
    drafter = HiddenDrafter(mixed)
    drafted = answer(FakeEngine(), request(10), [drafter])
    assert drafted.ids == plain.ids
    assert "layers [0, 2] were asked for" in drafted.outcome.report.dropped["hidden"]


def test_conformance_demands_layers_and_sessions_that_take_them():
    is_a_drafter(Harness(HiddenDrafter()))
    with pytest.raises(Nonconformance, match="give ascending numbers from 0 on"):
        is_a_drafter(Harness(HiddenDrafter(hidden_layers=(2, 1))))
    untaking = ScriptedDrafter()
    untaking.hidden_layers = (0,)
    with pytest.raises(Nonconformance, match="its sessions have no `take_hidden`"):
        is_a_drafter(Harness(untaking))
