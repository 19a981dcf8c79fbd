"""What a new prompt may keep of cells that another one wrote."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pilotfish.hooks.types import shared_prefix
from pilotfish.plugins._cells.cell_history import CellHistory
from tests.plugins._cells.fake_cells import BLOCK, answer, slot, written

prompts = st.lists(st.integers(0, 1), min_size=1, max_size=3 * BLOCK + 1)
requests = st.tuples(prompts, st.integers(0, 6))


def cells_of(prompt: Sequence[int], size: int) -> list[tuple[int, int]]:
    """What feeding `prompt` to an empty slot writes into its first `size` cells."""
    fresh = slot(exact=False)
    answer(fresh, prompt, 0)
    return written(fresh)[:size]


def history(prompt: Sequence[int], n: int = 0, *, exact: bool = False) -> CellHistory:
    mine = slot(exact=exact)
    answer(mine, prompt, n)
    return mine.history


@given(st.lists(requests, max_size=4), prompts)
def test_whatever_was_asked_before_what_is_kept_is_what_feeding_the_prompt_would_write(
    earlier: list[tuple[list[int], int]], prompt: list[int]
) -> None:
    mine = slot(exact=False)
    for before, n in earlier:
        answer(mine, before, n)
    kept = mine.reuse(prompt)
    assert kept < len(prompt)
    assert written(mine) == cells_of(prompt, kept)


@given(prompts, st.integers(0, 6), prompts)
def test_an_exact_cache_keeps_any_common_prefix_but_the_last_token(
    before: list[int], n: int, prompt: list[int]
) -> None:
    held = history(before, n, exact=True)
    assert held.shared(prompt) == shared_prefix(held.tokens, prompt)
    assert held.reusable(prompt) == min(held.shared(prompt), len(prompt) - 1)
    assert held.trusted == len(held)


@given(prompts, st.integers(0, 6), prompts)
def test_no_prompt_keeps_more_than_what_is_trusted(before: list[int], n: int, prompt: list[int]) -> None:
    held = history(before, n)
    assert held.reusable(prompt) <= held.trusted <= len(held)
    assert held.reusable(before) == held.trusted == len(before) - 1


def test_a_copy_goes_its_own_way() -> None:
    held = history([1, 2, 3, 4, 5, 6])
    twin = held.copy()
    held.cut(0)
    assert list(twin.tokens) == [1, 2, 3, 4, 5]
    assert twin.reusable([1, 2, 3, 4, 5, 6]) == 5
