"""The numpy sampler: what every option leaves is what libllama's own sampler leaves, and draws can be taken back."""

from __future__ import annotations

import ctypes
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.types import SamplingParams
from pilotfish.plugins._cells.sampling import CellSampler, Penalties, drawn, narrowed, shortlist

N = 1000
EVERYTHING = SamplingParams(top_k=0, top_p=1, min_p=0, typical_p=1)


def row_of(seed: int, n: int = N, spread: float = 3.0) -> Any:
    return np.random.default_rng(seed).normal(0, spread, n).astype(np.float32)


class OneRow:
    """As much of a context as a sampler sees."""

    def __init__(self, row: Any) -> None:
        self.n_vocab, self.cells, self._row = len(row), 4096, row

    def row(self, i: int) -> Any:
        return self._row


def sampler_over(row: Any, params: SamplingParams, prompt: tuple[int, ...] = (1, 2, 3)) -> CellSampler:
    return CellSampler(OneRow(row), params, prompt, frozenset({0}), lambda grammar: pytest.fail("no grammar"))  # type: ignore[arg-type]


@pytest.mark.model
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "params",
    [
        replace(EVERYTHING, top_k=40),
        replace(EVERYTHING, top_k=1),
        replace(EVERYTHING, top_p=0.9),
        replace(EVERYTHING, top_p=0.0),
        replace(EVERYTHING, top_p=-3.0, min_keep=4),
        replace(EVERYTHING, min_p=0.05),
        replace(EVERYTHING, min_p=9.0),
        replace(EVERYTHING, min_p=0.5, min_keep=3),
        replace(EVERYTHING, typical_p=0.5),
        replace(EVERYTHING, typical_p=0.0),
        replace(EVERYTHING, typical_p=0.3, min_keep=7),
        replace(EVERYTHING, typical_p=0.9, top_p=0.8, min_p=0.1, top_k=100),
        SamplingParams(),
    ],
)
def test_an_option_leaves_the_candidates_that_libllama_leaves(params: SamplingParams, seed: int) -> None:
    row = row_of(seed)
    ids, weights = narrowed(*shortlist(row, params.top_k), params)
    assert (set(ids), pytest.approx(dict(zip(ids, weights, strict=True)), abs=1e-6)) == left_by_libllama(row, params)


def left_by_libllama(row: Any, params: SamplingParams) -> tuple[set[int], dict[int, float]]:
    from llama_cpp import llama_cpp as lib

    from pilotfish.plugins._cells.candidates import Candidates

    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    for sampler in (
        lib.llama_sampler_init_top_k(params.top_k),
        lib.llama_sampler_init_typical(params.typical_p, params.min_keep),
        lib.llama_sampler_init_top_p(params.top_p, params.min_keep),
        lib.llama_sampler_init_min_p(params.min_p, params.min_keep),
    ):
        lib.llama_sampler_chain_add(chain, sampler)
    candidates = Candidates(lib.llama_token_data, lib.llama_token_data_array, len(row))
    candidates.fill(row)
    lib.llama_sampler_apply(chain, candidates.pointer)
    struct = ctypes.cast(candidates.pointer, ctypes.POINTER(lib.llama_token_data_array)).contents
    left = {struct.data[i].id: struct.data[i].logit for i in range(struct.size)}
    lib.llama_sampler_free(chain)
    return set(left), left


@pytest.mark.model
def test_penalties_are_libllamas() -> None:
    from llama_cpp import llama_cpp as lib

    from pilotfish.plugins._cells.candidates import Candidates

    params = SamplingParams(repeat_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.4, repeat_last_n=8)
    row, history = row_of(1), [5, 6, 7, 5, 5, 8, 900, 6, 5, 7, 11]
    theirs = lib.llama_sampler_init_penalties(N, 8, 1.3, 0.2, 0.4)
    candidates = Candidates(lib.llama_token_data, lib.llama_token_data_array, N)
    candidates.fill(row)
    ours = Penalties(params, 8)
    for token in history:
        lib.llama_sampler_accept(theirs, token)
        ours.accept(token)
    lib.llama_sampler_apply(theirs, candidates.pointer)
    ours.apply(row)
    lib.llama_sampler_free(theirs)
    assert np.allclose(row, candidates.array["logit"], atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 1200), st.sampled_from([1, 7, 127, 128, 129, 1000, 5000]))
def test_the_shortlist_is_the_head_of_the_sorted_row(seed: int, k: int, n: int) -> None:
    row = np.round(row_of(seed, n), 1)  # many ties
    ids, weights = shortlist(row, k)
    expected = sorted(range(n), key=lambda id: (-row[id], id))[:k]
    assert list(ids) == expected
    assert list(weights) == [row[id] for id in expected]


def test_draws_follow_the_probabilities() -> None:
    weights = np.log(np.array([0.5, 0.3, 0.2]))
    counts = np.bincount([drawn(weights, 1.0, i / 1000) for i in range(1000)], minlength=3)
    assert list(counts) == [500, 300, 200]
    hot = np.bincount([drawn(weights, 1e30, i / 999) for i in range(999)], minlength=3)
    assert list(hot) == [333, 333, 333]
    assert drawn(weights, 0.0, 0.99) == 0


@pytest.mark.parametrize(
    "params",
    [SamplingParams(seed=3), SamplingParams(seed=3, repeat_penalty=1.5, temperature=1.5)],
    ids=["plain", "penalties"],
)
def test_draws_that_are_taken_back_come_again(params: SamplingParams) -> None:
    row, prompt = row_of(2), (1, 2, 3)
    straight = sampler_over(row, params)
    expected = [straight.sample(0) for _ in range(12)]
    assert len(set(expected)) > 2
    halting = sampler_over(row, params)
    emitted: list[int] = []
    for _ in range(12):
        mark = halting.draws
        for i in range(3):
            halting.sample(i)
        halting.rewind(mark, prompt, emitted)
        emitted.append(halting.sample(0))
    assert emitted == expected


def test_a_greedy_pick_is_the_first_of_the_highest() -> None:
    row = np.zeros(300, dtype=np.float32)
    row[[50, 200]] = 4.0
    assert sampler_over(row, SamplingParams(temperature=0)).sample(0) == 50
    biased = SamplingParams(temperature=0, logit_bias=((200, 1.0), (50, -1.0), (50, -1.0)))
    assert sampler_over(row, biased).sample(0) == 200
    assert list(row[[50, 200]]) == [4.0, 4.0]  # the engine's own row stays as it was


def test_nothing_left_to_draw_is_the_requests_fault() -> None:
    banned = tuple((token, -math.inf) for token in range(8))
    for params in (SamplingParams(temperature=0, logit_bias=banned), SamplingParams(logit_bias=banned)):
        with pytest.raises(RequestError, match="no token"):
            sampler_over(row_of(0, 8), params).sample(0)
