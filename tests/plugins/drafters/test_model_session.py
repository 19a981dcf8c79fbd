"""Drafting with a model, on a fake one: what is fed and cut, when a proposal ends, what a failing model costs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.history import History
from pilotfish.hooks.protocols import Drafter
from pilotfish.hooks.types import EMPTY, Placement, TargetPin
from pilotfish.lab.conformance import DrafterConformance
from pilotfish.plugins.drafters._model_session import DraftCache, ModelSession

PROMPT = [5, 6, 7, 8]


def successor(cells: Sequence[int]) -> tuple[int, float]:
    """Counts upwards, nearly sure."""
    return (cells[-1] + 1) % 32, 0.99


class FakeModel:
    """Answers `script(cells)`, records what it was asked to do, and notices what no engine would survive."""

    def __init__(
        self, script: Callable[[Sequence[int]], tuple[int, float]] = successor, n_ctx: int = 4096, n_vocab: int = 32
    ) -> None:
        self.script = script
        self.n_ctx, self.n_vocab = n_ctx, n_vocab
        self.cells: list[int] = []
        self.calls: list[tuple[str, object]] = []
        self.fail = False

    def feed(self, tokens: Sequence[int]) -> tuple[int, float]:
        self.calls.append(("feed", list(tokens)))
        assert tokens
        assert all(0 <= token < self.n_vocab for token in tokens)
        if self.fail:
            self.cells = [31] * 3  # whatever got that far
            raise EngineError("the fake forward failed")
        self.cells.extend(tokens)
        assert len(self.cells) <= self.n_ctx
        return self.script(self.cells)

    def cut(self, size: int) -> None:
        self.calls.append(("cut", size))
        assert size <= len(self.cells)
        del self.cells[size:]

    def taken(self) -> list[tuple[str, object]]:
        calls, self.calls = self.calls, []
        return calls


def opened(model: FakeModel, prompt: Sequence[int] = PROMPT, *, min_confidence: float = 0.4) -> ModelSession:
    session = DraftCache(model).open(prompt, min_confidence=min_confidence)
    model.taken()
    return session


class TestConformance(DrafterConformance):
    @pytest.fixture
    def drafter(self) -> Drafter:
        cache = DraftCache(FakeModel(lambda cells: ((cells[-1] * 7 + len(cells)) % 32, 0.95)))

        class ByModel:
            name = "by-model"
            placement = Placement.THREAD

            def open(self, target: TargetPin, prompt: Sequence[int]) -> ModelSession:
                return cache.open(prompt)

        return ByModel()


def test_opening_feeds_the_prompt_in_one_call() -> None:
    model = FakeModel()
    DraftCache(model).open(PROMPT)
    assert model.taken() == [("feed", PROMPT)]


def test_a_proposal_costs_one_forward_for_each_token_after_the_first() -> None:
    model = FakeModel()
    session = opened(model)
    assert session.propose(3).tokens == (9, 10, 11)
    assert model.taken() == [("feed", [9]), ("feed", [10])]


def test_after_full_acceptance_the_last_proposal_and_the_bonus_token_are_fed_together() -> None:
    model = FakeModel()
    session = opened(model)
    session.commit([*session.propose(3).tokens, 20])
    model.taken()
    assert session.propose(1).tokens == (21,)
    assert model.taken() == [("feed", [11, 20])]


def test_a_rejection_cuts_what_was_rejected_and_no_more() -> None:
    model = FakeModel()
    session = opened(model)
    session.propose(4)
    session.commit([9, 20])
    model.taken()
    assert session.propose(1).tokens == (21,)
    assert model.taken() == [("cut", 5), ("feed", [20])]
    assert model.cells == [*PROMPT, 9, 20]


def test_after_a_rollback_the_same_proposal_costs_nothing() -> None:
    model = FakeModel()
    session = opened(model)
    first = session.propose(4)
    assert session.rollback() == History(PROMPT).ack()
    model.taken()
    assert session.propose(4) == first
    assert model.taken() == []


def test_a_rolled_back_proposal_that_comes_true_costs_only_what_is_new() -> None:
    model = FakeModel()
    session = opened(model)
    session.propose(4)
    session.rollback()
    session.commit([9])
    model.taken()
    assert session.propose(4).tokens == (10, 11, 12, 13)
    assert model.taken() == [("feed", [12])]


def test_a_plain_stretch_is_fed_in_one_call() -> None:
    model = FakeModel()
    session = opened(model)
    for token in (9, 10, 11, 12, 3, 4):
        session.commit([token])
    assert model.taken() == []
    assert session.propose(2).tokens == (5, 6)
    assert model.taken() == [("feed", [9, 10, 11, 12, 3, 4]), ("feed", [5])]


def test_a_later_session_keeps_the_common_prefix() -> None:
    model = FakeModel()
    cache = DraftCache(model)
    first = cache.open(PROMPT)
    first.commit([9, 10, 3])
    first.propose(2)
    first.close()
    model.taken()
    cache.open([*PROMPT, 9, 10, 12])
    assert model.taken() == [("cut", 6), ("feed", [12])]


def test_a_later_session_on_a_prefix_feeds_its_last_token_again() -> None:
    model = FakeModel()
    cache = DraftCache(model)
    cache.open([*PROMPT, 9, 10])
    model.taken()
    assert cache.open(PROMPT).propose(1).tokens == (9,)
    assert model.taken() == [("cut", 3), ("feed", [8])]


def test_sessions_that_take_turns_get_what_they_would_get_alone() -> None:
    script = FakeModel(lambda cells: ((sum(cells) * 5 + len(cells)) % 32, 0.97)).script
    rng = random.Random(4)
    shared = DraftCache(FakeModel(script))
    prompts = [PROMPT, [5, 6, 9], [1]]
    together = [shared.open(prompt) for prompt in prompts]
    alone = [opened(FakeModel(script), prompt) for prompt in prompts]
    for _ in range(60):
        i = rng.randrange(len(prompts))
        proposal = together[i].propose(5)
        assert proposal == alone[i].propose(5)
        tokens = [*proposal.tokens[: rng.randrange(6)], rng.randrange(32)]
        assert together[i].commit(tokens) == alone[i].commit(tokens)


def test_what_is_compared_does_not_grow_with_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeModel(n_ctx=100_000)
    session = opened(model, PROMPT * 1000)
    compared: list[int] = []

    def prefix(a: Sequence[int], b: Sequence[int]) -> int:
        compared.append(len(b))
        return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))

    # Of the module as this session knows it: other tests load the drafters' modules anew.
    monkeypatch.setitem(type(session).commit.__globals__, "shared_prefix", prefix)
    for _ in range(20):
        session.commit([*session.propose(3).tokens, 20])
    assert max(compared) <= 5


def test_it_stops_before_its_own_probability_falls_too_low() -> None:
    model = FakeModel(lambda cells: (len(cells), 0.8))
    session = opened(model, min_confidence=0.5)
    proposal = session.propose(8)
    assert proposal.tokens == (4, 5, 6)  # 0.8, 0.64, 0.512; the fourth would be 0.41
    assert proposal.confidence == (0.8, 0.8, 0.8)
    assert len(model.taken()) == 3  # one forward found out that the fourth is not worth proposing


def test_it_proposes_nothing_when_it_knows_nothing() -> None:
    session = opened(FakeModel(lambda cells: (3, 0.1)))
    assert session.propose(8) == EMPTY


def test_without_a_threshold_it_proposes_what_it_is_asked_for() -> None:
    session = opened(FakeModel(lambda cells: (3, 0.01)), min_confidence=0.0)
    assert session.propose(8).tokens == (3,) * 8


@pytest.mark.parametrize("wrong", [32, -1, 1 << 40])
def test_an_id_outside_the_vocabulary_ends_the_proposal(wrong: int) -> None:
    session = opened(FakeModel(lambda cells: (wrong if len(cells) == 6 else 3, 0.99)))
    assert session.propose(8).tokens == (3, 3)


@pytest.mark.parametrize("sure", [float("nan"), -0.5])
def test_a_probability_that_is_none_ends_the_proposal(sure: float) -> None:
    assert opened(FakeModel(lambda cells: (3, sure)), min_confidence=0.1).propose(8) == EMPTY


def test_a_probability_above_one_counts_as_one() -> None:
    assert opened(FakeModel(lambda cells: (3, 1.0000001))).propose(2).confidence == (1.0, 1.0)


def test_proposals_end_where_the_context_does_and_the_session_goes_on() -> None:
    model = FakeModel(n_ctx=6)
    session, expected = opened(model), History(PROMPT)
    assert session.propose(8).tokens == (9, 10, 11)  # the last of them needs no cell
    for tokens, left in (([9, 10], (11,)), ([11], ()), ([12, 13], ())):
        assert session.commit(tokens) == expected.commit(tokens)
        assert session.propose(8).tokens == left
        assert session.rollback() == expected.ack()


def test_a_prompt_beyond_the_context_is_acknowledged_and_never_fed() -> None:
    model = FakeModel(n_ctx=6)
    session = DraftCache(model).open(range(20))
    assert session.propose(4) == EMPTY
    assert session.rollback() == History(range(20)).ack()
    assert model.taken() == []


def test_nothing_is_proposed_on_an_empty_history() -> None:
    session = opened(FakeModel(), [])
    assert session.propose(4) == EMPTY
    assert session.commit([3]) == History().commit([3])
    assert session.propose(2).tokens == (4, 5)


def test_ids_that_the_model_does_not_know_are_acknowledged_and_never_fed() -> None:
    model = FakeModel()
    session = opened(model)
    assert session.commit([40]) == History(PROMPT).commit([40])
    assert session.propose(4) == EMPTY
    assert DraftCache(model).open([5, -1]).propose(4) == EMPTY
    assert model.taken() == []


def test_after_a_failed_forward_the_cells_are_filled_anew() -> None:
    model = FakeModel()
    session = opened(model)
    session.commit([9, 3])
    model.fail = True
    with pytest.raises(EngineError):
        session.propose(4)
    assert session.rollback() == History(PROMPT).commit([9, 3])
    model.fail = False
    model.taken()
    assert session.propose(2).tokens == (4, 5)
    assert model.taken() == [("cut", 0), ("feed", [*PROMPT, 9, 3]), ("feed", [4])]


def test_a_forward_that_fails_in_mid_proposal_leaves_no_wrong_cells() -> None:
    model = FakeModel()
    session = opened(model)
    model.fail = True
    with pytest.raises(EngineError):
        session.propose(4)
    model.fail = False
    assert session.propose(3).tokens == (9, 10, 11)
    assert model.cells == [*PROMPT, 9, 10]


def test_a_session_of_an_unloaded_model_gets_an_error_and_touches_nothing() -> None:
    model = FakeModel()
    cache = DraftCache(model)
    session = cache.open(PROMPT)
    model.taken()
    cache.close()
    with pytest.raises(EngineError, match="unloaded"):
        session.propose(4)
    assert model.taken() == []
    assert session.commit([9]) == History(PROMPT).commit([9])
