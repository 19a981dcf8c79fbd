"""Several requests in one real engine: the ids, and the bits of the rows, are those that each has alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pilotfish.daemon.config.types import Config, Drafters, Speculation
from pilotfish.daemon.core.controller import Eager
from pilotfish.daemon.core.generation import GenerationRequest, OutputToken
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.lab.conformance.verifier_checks import GREEDY, SEEDED, ready
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import EngineError, ProtocolViolation
from pilotfish.hooks.types import SamplingParams
from pilotfish.plugins._cells.loading import BESIDE
from tests.engines import LoadEngine
from tests.plugins.verifiers.conftest import LANES

if TYPE_CHECKING:
    from pilotfish.hooks.types import TargetPin
    from pilotfish.plugins._cells.engine import CellEngine

pytestmark = pytest.mark.model

SLOTS = 3
N = 24
TEXTS = (
    "One, two, three, four, five, six, seven, eight, nine, ten. One, two, three,",
    "The capital of France is Paris. The capital of Spain is Madrid. The capital of",
    "A story about a dog that could not swim. " * 12 + "The dog",
    "Write a list: apple, pear, plum, apple, pear, plum, apple,",
)


@pytest.fixture(scope="module", params=["llama", "ik"])
def loaded(request: pytest.FixtureRequest, load_engine: LoadEngine, quantized) -> Iterator[CellEngine]:
    """Three slots of 512 tokens, in the verifier's exact lane."""
    loaded = load_engine(quantized("Q4_0"), LANES[request.param], 512, 64, verifier=request.param, slots=SLOTS)
    yield loaded
    loaded.close()


@pytest.fixture
def slotted(loaded: CellEngine) -> Iterator[CellEngine]:
    """It, with its slots freed after the test."""
    yield loaded
    for session in list(loaded.sessions):
        session.close()


def requests(engine: CellEngine, n: int = len(TEXTS)) -> list[GenerationRequest]:
    """Greedy and seeded by turns, with and without drafts."""
    samplings = [replace(sampling, ignore_eos=True) for sampling in (GREEDY, SEEDED)]
    prompts = [tuple(engine.tokenizer.encode(text)) for text in TEXTS[:n]]
    return [
        GenerationRequest(prompt, samplings[i % 2], N, speculate=i != 1, cache_prompt=False)
        for i, prompt in enumerate(prompts)
    ]


def generator(engine: CellEngine, pin: TargetPin, controller: type = Eager) -> Generator:
    config = Config(Speculation(), Drafters(("suffix",)))
    return Generator(engine, pin, Registry.load(config), config, controller=controller)


def answers(generator: Generator, asked: Sequence[GenerationRequest]) -> list[list[int]]:
    """Their ids, with as many at a time as there are slots."""
    found: list[list[int]] = [[] for _ in asked]
    waiting = list(enumerate(asked))
    running = []
    while waiting or running:
        while waiting and len(running) < generator.slots:
            i, request = waiting.pop(0)
            running.append(generator.begin(request, partial(_extend, found[i]), lambda: False))
        generator.turn(running)
        for answering in running:
            assert not answering.ended or answering.outcome()
        running = [answering for answering in running if not answering.ended]
    return found


def _extend(ids: list[int], tokens: Sequence[OutputToken]) -> None:
    ids.extend(token.token for token in tokens)


def test_answers_beside_others_are_those_that_each_has_alone(slotted, pin_of, quantized):
    pin = pin_of(quantized("Q4_0"))
    asked = requests(slotted)
    alone = [answers(generator(slotted, pin), [request])[0] for request in asked]
    assert all(len(ids) == N for ids in alone)
    assert answers(generator(slotted, pin), asked) == alone
    assert answers(generator(slotted, pin), list(reversed(asked))) == list(reversed(alone))


def rows_of(engine: CellEngine, ids: Sequence[int], steps: int = 6) -> list[np.ndarray]:
    """The rows of single steps after `ids`, alone."""
    with ready(engine, ids) as session:
        rows = []
        for _ in range(steps):
            token = session.verify([]).pick(0)
            rows.append(session.slot.context.row(0).copy())
            session.commit([token])
    return rows


def test_a_step_beside_others_has_the_bits_of_a_step_alone(slotted):
    prompts = [request.prompt for request in requests(slotted, SLOTS)]
    alone = [rows_of(slotted, prompt) for prompt in prompts]
    sessions = [slotted.open(prompt, GREEDY, cache_prompt=False) for prompt in prompts]
    for session in sessions:
        while session.prefill():
            pass
    for step in range(6):
        if slotted.together(1) >= SLOTS:
            found = slotted.verify_together([(session, ()) for session in sessions])
            seen = [(session, rows) for session, rows in zip(sessions, found, strict=True)]
        else:
            seen = [(session, None) for session in sessions]
        for i, (session, rows) in enumerate(seen):
            rows = rows or session.verify([])
            token = rows.pick(0)
            assert np.array_equal(session.slot.context.row(0), alone[i][step])
            session.commit([token])


def test_libllama_joins_what_its_check_found_equal_and_ik_joins_nothing(slotted):
    joins = [slotted.together(width) for width in slotted.lane.widths]
    if slotted.engine.name == "ik":
        assert set(joins) == {1}
    else:
        assert joins[0] == SLOTS
    assert all(many == 1 or many * width <= 16 for many, width in zip(joins, slotted.lane.widths, strict=True))
    with pytest.raises(ProtocolViolation, match="together"):
        slotted.verify_together([(None, [1] * 15)] * 2)


def test_a_rollback_and_an_end_beside_others_change_nothing_for_them(slotted):
    prompts = [request.prompt for request in requests(slotted, SLOTS)]
    alone = rows_of(slotted, prompts[2])
    sessions = [slotted.open(prompt, SEEDED, cache_prompt=False) for prompt in prompts[:2]]
    last = slotted.open(prompts[2], GREEDY, cache_prompt=False)
    for session in (*sessions, last):
        while session.prefill():
            pass
    for step in range(6):
        if step == 2:
            sessions.pop().close()
        for session in sessions:
            session.verify([5, 6, 7])
            session.rollback()
        token = last.verify([]).pick(0)
        assert np.array_equal(last.slot.context.row(0), alone[step])
        last.commit([token])


def test_every_slot_has_the_whole_context_and_no_more(slotted):
    assert slotted.n_ctx == 512
    long = tuple(slotted.tokenizer.encode(TEXTS[2])) * 4
    sessions = [slotted.open(long[: 511 - i], GREEDY, cache_prompt=False) for i in range(SLOTS)]
    assert {session.slot_id for session in sessions} == set(range(SLOTS))
    for session in sessions:
        while session.prefill():
            pass
        session.commit([session.verify([]).pick(0)])
    with pytest.raises(ProtocolViolation, match="every slot"):
        slotted.open(long[:5], GREEDY)


def test_a_prompt_gets_the_slot_that_holds_its_beginning_or_the_one_that_rested_longest(slotted):
    prompts = [request.prompt for request in requests(slotted, SLOTS)]
    for number, prompt in enumerate(prompts):
        with closing(slotted.open(prompt, GREEDY, cache_prompt=False, slot=number)) as session:
            while session.prefill():
                pass
    for number in (1, 2, 0):
        again = slotted.open((*prompts[number], 5, 6), GREEDY)
        assert again.slot_id == number
        again.close()
    other = slotted.open((900, 901, 902), GREEDY)
    assert other.slot_id == 1
    with pytest.raises(ProtocolViolation, match="slot 1 of 3"):
        slotted.open(prompts[0], GREEDY, slot=1)


def test_sampling_that_no_sampler_can_follow_leaves_its_slot_free(slotted):
    for _ in range(SLOTS + 1):
        with pytest.raises(Exception, match="grammar"):
            slotted.open((5, 6), SamplingParams(grammar="nonsense ::= ("))
    assert slotted.open((5, 6), GREEDY).slot_id in range(SLOTS)


def test_a_forward_that_fails_ends_those_in_it_and_no_other(slotted, monkeypatch):
    prompts = [request.prompt for request in requests(slotted, SLOTS)]
    sessions = [slotted.open(prompt, GREEDY, cache_prompt=False) for prompt in prompts]
    for session in sessions:
        while session.prefill():
            pass
    if slotted.engine.name == "ik":
        with pytest.raises(ProtocolViolation, match="together"):
            slotted.verify_together([(session, ()) for session in sessions[:2]])
        return
    monkeypatch.setattr(slotted._joint, "_decode", lambda handle, batch: -3)
    with pytest.raises(EngineError, match="computation failed"):
        slotted.verify_together([(session, ()) for session in sessions[:2]])
    alone = sessions[2].verify([]).pick(0)
    for session in sessions[:2]:
        with pytest.raises(ProtocolViolation, match="failed"):
            session.verify([])
    sessions[2].commit([alone])


@pytest.mark.parametrize(("slots", "block"), [(1, 256), (2, BESIDE)])
def test_a_prompt_block_is_short_where_others_may_wait_for_it(
    slots: int, block: int, load_engine: LoadEngine, quantized
) -> None:
    loaded = load_engine(quantized("Q4_1"), LANES["llama"], 512, 256, slots=slots)
    with closing(loaded) as engine, ready(engine, range(5, 405)) as session:
        assert session.slot.history.blocks[0] == (0, block)
