from __future__ import annotations

import logging
import random
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.hooks.errors import ConfigError
from pilotfish.hooks.protocols import Drafter
from pilotfish.hooks.types import EMPTY
from pilotfish.lab.conformance import DrafterConformance
from pilotfish.lab.fakes import fake_pin
from pilotfish.plugins.drafters._suffix.index import MAX_MATCH, SuffixIndex
from pilotfish.plugins.drafters.suffix import SuffixDrafter

PIN = fake_pin()


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test meets what another one taught."""
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))


class TestConformance(DrafterConformance):
    @pytest.fixture
    def drafter(self) -> Drafter:
        return SuffixDrafter({"memory": "off"})


class TestConformanceWithAMemory(DrafterConformance):
    deterministic = False  # what one session leaves behind, the next may propose

    @pytest.fixture
    def drafter(self, tmp_path: Path) -> Drafter:
        return SuffixDrafter({"memory": "disk", "folder": str(tmp_path), "prompts": True})


def proposed(history: list[int], k: int = 4, **config: object) -> list[int]:
    return list(SuffixDrafter(config).open(PIN, history).propose(k).tokens)


class TestWhatIsProposed:
    def test_what_followed_the_same_tokens_before(self) -> None:
        assert proposed([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4], min_probability=0) == [5, 6, 7, 8]

    def test_nothing_when_nothing_repeats(self) -> None:
        assert SuffixDrafter().open(PIN, [1, 2, 3, 4, 5]).propose(4) == EMPTY

    def test_nothing_on_a_match_shorter_than_min_match(self) -> None:
        history = [1, 2, 3, 9, 8, 1, 2, 3]
        assert proposed(history, 2, min_match=3, min_probability=0) == [9, 8]
        assert proposed(history, 2, min_match=4, min_probability=0) == []

    def test_the_longest_match_wins_over_a_later_shorter_one(self) -> None:
        history = [1, 2, 3, 4, 5, 6, 70, 30, 5, 6, 80, 31, 1, 2, 3, 4, 5, 6]
        assert proposed(history, 1) == [70]

    def test_of_equal_matches_the_latest_wins(self) -> None:
        assert proposed([1, 2, 3, 50, 9, 1, 2, 3, 60, 8, 1, 2, 3], 1, min_probability=0) == [60]

    def test_of_equal_matches_the_majority_wins(self) -> None:
        history = [1, 2, 3, 50, 9, 1, 2, 3, 50, 8, 1, 2, 3, 60, 7, 1, 2, 3]
        assert proposed(history, 1, min_probability=0) == [50]

    def test_a_repetition_goes_on_past_the_end_of_the_history(self) -> None:
        assert proposed([7, 1, 2, 1, 2, 1, 2], 6, min_probability=0) == [1, 2, 1, 2, 1, 2]
        assert proposed([5] * 20, 15) == [5] * 15

    def test_a_single_token_counts_where_nothing_longer_is_known(self) -> None:
        assert proposed([1, 2, 3, 9, 4, 8, 3], 2, min_probability=0) == [9, 4]
        assert proposed([1, 2, 3, 9, 4, 8, 3], 2, min_probability=0, min_match=2) == []

    def test_numbers_are_counted_on_and_the_text_behind_them_goes_on(self) -> None:
        rows = [token for number in (10, 11, 12) for token in (number, 3, 4, 5, 6)]
        assert proposed(rows, 5, min_probability=0) == [13, 3, 4, 5, 6]

    def test_a_longer_match_makes_a_longer_proposal(self) -> None:
        source = list(range(100, 160))
        lengths = [len(proposed([*source, 1, *source[10 : 10 + n]], 15)) for n in (2, 3, 8, 30)]
        assert lengths == sorted(lengths)
        assert lengths[0] < lengths[-1] == 15

    def test_committed_output_counts_like_the_prompt(self) -> None:
        session = SuffixDrafter().open(PIN, [1, 2, 3])
        session.commit([4, 5, 6, 7])
        session.commit([20])
        session.commit([3, 4, 5])
        assert session.propose(2).tokens == (6, 7)


class TestConfidence:
    def test_grows_along_a_lone_match(self) -> None:
        sure = SuffixDrafter().open(PIN, [*range(20), 99, *range(8)]).propose(8).confidence
        assert list(sure) == sorted(sure)
        assert sure[0] < sure[-1]

    def test_is_higher_when_several_matches_agree_and_lower_when_they_do_not(self) -> None:
        def first(history: list[int]) -> float:
            return SuffixDrafter({"min_probability": 0}).open(PIN, history).propose(1).confidence[0]

        lone = first([1, 2, 3, 50, 9, 1, 2, 3])
        agreed = first([1, 2, 3, 50, 9, 1, 2, 3, 50, 8, 1, 2, 3])
        split = first([1, 2, 3, 50, 9, 1, 2, 3, 60, 8, 1, 2, 3])
        assert split < lone < agreed

    def test_tokens_unlikely_to_be_reached_are_left_out(self) -> None:
        history = [*range(20), 99, *range(4)]
        lengths = [len(proposed(history, 15, min_probability=p)) for p in (0, 0.3, 0.6, 1.0)]
        assert lengths == sorted(lengths, reverse=True)
        assert lengths[0] == 15
        assert lengths[-1] == 0


@pytest.mark.parametrize("memory", ["off", "session"])
def test_nothing_of_an_earlier_longer_session_is_proposed(memory: str) -> None:
    drafter = SuffixDrafter({"min_probability": 0, "memory": memory})
    longer = drafter.open(PIN, list(range(1, 41)))
    longer.propose(8)
    longer.close()
    drafter.flush()
    shorter = drafter.open(PIN, [1, 2, 99])
    assert shorter.propose(8) == EMPTY
    shorter.commit([1, 2])
    assert shorter.propose(3).tokens == (99, 1, 2)


class CountingArray(array):
    """Counts the single ids that are read from it."""

    reads = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        CountingArray.reads += len(found) if isinstance(key, slice) else 1
        return found


@pytest.mark.parametrize("vocabulary", [1, 2, 40, 5000])
def test_a_proposal_reads_no_more_of_a_long_history_than_of_a_short_one(vocabulary: int) -> None:
    rng = random.Random(vocabulary)
    phrase = [rng.randrange(vocabulary) for _ in range(200)]

    def reads(length: int) -> int:
        tokens = CountingArray("i")
        while len(tokens) < length:
            start = rng.randrange(150)
            tokens.extend(phrase[start : start + 50] if rng.random() < 0.8 else [rng.randrange(vocabulary)])
        index, worst = SuffixIndex(tokens), 0
        for _ in range(100):
            tokens.append(rng.choice(phrase))
            CountingArray.reads = 0
            index.update()
            index.matches(tokens, 2, 8)
            worst = max(worst, CountingArray.reads)
        return worst

    # 4 levels, 32 links each (or few single tokens instead), MAX_MATCH ids read per link; and the n-grams hashed
    bound = 4 * 32 * MAX_MATCH + 4 * MAX_MATCH
    assert reads(500) <= bound
    assert reads(50_000) <= bound


def test_a_token_takes_fewer_than_a_hundred_bytes() -> None:
    rng = random.Random(1)
    for length in (5_000, 50_000, 100_000):
        index = SuffixIndex(array("i", (rng.randrange(49_152) for _ in range(length))))
        assert index.nbytes() / length < 60


@given(
    tokens=st.lists(st.integers(0, 3), max_size=300),
    steps=st.lists(st.integers(0, 40), max_size=20),
    least=st.integers(2, 6),
)
def test_the_index_finds_what_a_search_of_the_whole_history_finds(
    tokens: list[int], steps: list[int], least: int
) -> None:
    grown = array("i")
    index = SuffixIndex(grown)
    for step in [*steps, len(tokens)]:
        grown.extend(tokens[len(grown) : len(grown) + step])
        index.update()
    found = {match.end: match.length for match in index.matches(grown, least, most=10_000)}
    assert found == search(grown, least)


@given(seed=st.integers(0, 1000), cut=st.integers(0, 1500), vocabulary=st.sampled_from([2, 5, 300]))
def test_tokens_entered_in_bulk_are_found_like_those_entered_singly(seed: int, cut: int, vocabulary: int) -> None:
    rng = random.Random(seed)
    tokens = array("i", (rng.randrange(vocabulary) for _ in range(1500)))
    grown = tokens[:cut]
    index = SuffixIndex(grown)
    grown.extend(tokens[cut:])
    index.update()
    found = {match.end: match.length for match in index.matches(grown, 2, most=10_000)}
    assert found == search(grown, 2)


@given(
    tokens=st.lists(st.integers(0, 3), min_size=2, max_size=300),
    drops=st.lists(st.integers(0, 100), max_size=5),
    more=st.lists(st.integers(0, 3), max_size=50),
)
def test_what_was_dropped_is_not_found_and_the_rest_still_is(
    tokens: list[int], drops: list[int], more: list[int]
) -> None:
    grown = array("i", tokens)
    index = SuffixIndex(grown)
    for n in drops:
        index.drop(min(n, len(grown) - 1))
        grown.extend(more)
        index.update()
    found = {match.end: match.length for match in index.matches(grown, 2, most=10_000)}
    assert found == search(grown, 2)


def search(tokens: array[int], least: int) -> dict[int, int]:
    """End -> length of every match of at least `least` tokens, the slow way."""
    found = {}
    for end in range(1, len(tokens)):
        length = 0
        while length < min(end, MAX_MATCH) and tokens[end - 1 - length] == tokens[-1 - length]:
            length += 1
        if length >= least:
            found[end] = length
    return found


class TestConfig:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("min_match", 0),
            ("min_match", True),
            ("min_match", "3"),
            ("max_candidates", 0),
            ("max_candidates", 2.5),
            ("min_probability", 1.1),
            ("min_probability", "high"),
            ("memory", "on"),
            ("memory", True),
            ("memory", ["disk"]),
            ("memory_tokens", 10),
            ("memory_tokens", 1e6),
            ("memory_days", 0),
            ("memory_days", "month"),
            ("prompts", "yes"),
            ("prompts", 1),
            ("folder", "relative/path"),
            ("folder", 3),
        ],
    )
    def test_a_bad_value_is_refused_by_its_path(self, key: str, value: object) -> None:
        with pytest.raises(ConfigError, match=f"^drafters.suffix.{key}: expected"):
            SuffixDrafter({key: value})

    def test_an_unknown_key_is_ignored_with_a_hint(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, "pilotfish.drafters"):
            SuffixDrafter({"min_mach": 3})
        assert "drafters.suffix.min_mach" in caplog.text
        assert "'min_match'" in caplog.text
