"""How `suffix` learns what its proposals are worth."""

from __future__ import annotations

import random
from array import array
from pathlib import Path
from typing import Any

import pytest

from pilotfish.lab.fakes import fake_pin
from pilotfish.plugins.drafters._suffix.calibration import (
    AGREED,
    COUNTED,
    LOCAL,
    LONE,
    MAJORITY,
    MEMORY,
    N_CELLS,
    OUTVOTED,
    PAIR,
    SPLIT,
    RequestCalibration,
    Taught,
    cell,
)
from pilotfish.plugins.drafters._suffix.index import MAX_MATCH
from pilotfish.plugins.drafters.suffix import SuffixDrafter

PIN = fake_pin(10_000)
EVEN = array("d", [0.7] * N_CELLS)  # of no cell more is known than of another


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test meets what another one taught."""
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))


def request(drafter: SuffixDrafter, rng: random.Random, wrong: bool, rounds: int = 40) -> list[float]:
    """A request in which pairs repeat, always or never with what followed; the first confidence of each round."""
    pairs = [(rng.randrange(1000), rng.randrange(1000, 2000), rng.randrange(2000, 3000)) for _ in range(rounds)]
    session = drafter.open(PIN, [token for i, pair in enumerate(pairs) for token in (*pair, 5000 + i)])
    confidence = []
    for i, (first, second, third) in enumerate(pairs):
        session.commit([6000 + i, first, second])
        proposal = session.propose(3)
        confidence.append(proposal.confidence[0] if proposal else 0.0)
        session.commit([9000 + i if wrong else third])
    session.close()
    drafter.flush()
    return confidence


def make(**table: Any) -> SuffixDrafter:
    return SuffixDrafter({"memory": "off", "min_probability": 0.0, **table})


class TestCells:
    def test_every_combination_has_one_of_its_own(self) -> None:
        lengths, places = (1, 2, 3, 4, 5, 7, 11, 15, 23, 31, MAX_MATCH), (0, 1, 2, 4, 8)
        cells = {
            cell(source, kind, length, place)
            for source in (LOCAL, MEMORY)
            for kind in (LONE, PAIR, AGREED, OUTVOTED, SPLIT, MAJORITY, COUNTED)
            for length in lengths
            for place in places
        }
        assert cells == set(range(N_CELLS))

    @pytest.mark.parametrize("place", [0, 63, 255])
    def test_every_length_and_place_has_one(self, place: int) -> None:
        assert all(0 <= cell(MEMORY, AGREED, length, place) < N_CELLS for length in range(MAX_MATCH + place + 1))


class TestEstimates:
    def test_begin_with_the_prior_and_end_with_what_was_seen(self) -> None:
        acceptance = RequestCalibration(Taught(EVEN))
        assert acceptance.estimate(3) == 0.7
        for _ in range(200):
            acceptance.observe(3, True)
        assert acceptance.estimate(3) > 0.95
        assert acceptance.estimate(4) == 0.7

    def test_forget(self) -> None:
        acceptance = RequestCalibration(Taught(EVEN))
        for _ in range(1000):
            acceptance.observe(3, True)
        for _ in range(150):
            acceptance.observe(3, False)
        assert acceptance.estimate(3) < 0.2

    def test_are_probabilities_whatever_was_seen(self) -> None:
        rng = random.Random(1)
        taught = Taught(EVEN)
        for _ in range(50):
            acceptance = RequestCalibration(taught)
            for _ in range(rng.randrange(200)):
                acceptance.observe(rng.randrange(4), rng.random() < 0.3)
                assert all(0 <= acceptance.estimate(at) <= 1 for at in range(5))
            acceptance.teach()

    def test_one_request_moves_the_models_table_by_a_bounded_share(self) -> None:
        taught = Taught(EVEN)
        for _ in range(20):
            good = RequestCalibration(taught)
            for _ in range(40):
                good.observe(3, True)
            good.teach()
        before = taught.estimate(3)
        bad = RequestCalibration(taught)
        for _ in range(10_000):
            bad.observe(3, False)
        bad.teach()
        assert before > 0.98
        assert taught.estimate(3) > 0.85


class TestSessions:
    def test_learn_that_a_kind_of_match_is_right_or_wrong(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        right = request(make(), random.Random(1), wrong=False)
        monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "another"))
        wrong = request(make(), random.Random(1), wrong=True)
        assert right[0] == wrong[0]
        assert right[-1] > right[0] + 0.2
        assert wrong[-1] < wrong[0] - 0.2

    def test_begin_with_what_an_earlier_process_learned(self) -> None:
        first = request(make(), random.Random(1), wrong=False)
        later = make()
        later.open(PIN, [1]).close()
        later.flush()  # by now it has read what there is
        assert request(later, random.Random(1), wrong=False)[0] > first[0]

    def test_stop_proposing_what_is_always_wrong_and_notice_when_it_is_right_again(self) -> None:
        drafter = make(min_probability=0.4)
        silent = request(drafter, random.Random(1), wrong=True, rounds=60)
        assert silent[-1] == 0.0
        again = request(drafter, random.Random(2), wrong=False, rounds=60)
        assert again[-1] > 0.5

    def test_begin_with_what_earlier_requests_taught(self) -> None:
        drafter = make()
        first = request(drafter, random.Random(1), wrong=False)
        second = request(drafter, random.Random(2), wrong=False)
        assert second[0] > first[0]

    def test_a_bad_stretch_does_not_wipe_what_others_taught(self) -> None:
        drafter = make()
        for seed in range(20):
            request(drafter, random.Random(seed), wrong=False)
        before = request(drafter, random.Random(50), wrong=False)[0]
        request(drafter, random.Random(51), wrong=True, rounds=400)
        after = request(drafter, random.Random(52), wrong=False)[0]
        assert after > before - 0.15

    def test_a_proposal_that_was_not_verified_teaches_as_well(self) -> None:
        verified, watched = (make().open(PIN, [*range(50), *range(10)]) for _ in range(2))
        for session in (verified, watched):
            session.propose(4)
            if session is watched:
                session.rollback()
            session.commit([10, 11])
            session.commit([12])
        assert verified.propose(4) == watched.propose(4)

    def test_the_memory_keeps_its_text_through_a_bad_stretch(self) -> None:
        song = list(range(100, 140))
        drafter = SuffixDrafter({"min_probability": 0.0})
        for _ in range(3):
            session = drafter.open(PIN, [])
            session.commit(song)
            session.close()
        drafter.flush()
        session = drafter.open(PIN, [])
        for i in range(200):
            session.commit([100 + i % 30, 101 + i % 30])
            session.propose(4)
            session.commit([7000 + i])
        session.close()
        drafter.flush()
        again = drafter.open(PIN, song[:8])
        assert again.propose(4).tokens == tuple(song[8:12])

    def test_sources_are_judged_apart(self) -> None:
        rng = random.Random(1)
        drafter = SuffixDrafter({"min_probability": 0.0})
        text = [rng.randrange(3000) for _ in range(400)]
        session = drafter.open(PIN, [])
        session.commit(text)
        session.close()
        drafter.flush()
        session = drafter.open(PIN, [*range(5000, 5400)])
        for i in range(60):  # what the memory says is wrong, what this request said is right
            session.commit([9000 + i, *text[5 * i : 5 * i + 3]])
            session.propose(1)
            session.commit([9100 + i, *range(5000 + 5 * i, 5003 + 5 * i)])
            session.propose(1)
            session.commit([5003 + 5 * i])
        session.commit([9999, *text[350:353]])
        remembered = session.propose(1).confidence[0]
        session.commit([9999, *range(5350, 5353)])
        local = session.propose(1).confidence[0]
        assert remembered < 0.3
        assert local > 0.85
