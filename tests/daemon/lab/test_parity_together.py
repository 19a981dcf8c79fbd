"""Chats together and alone: what a run asks, what it finds, and that on real engines there is nothing to be found."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from pilotfish.daemon.lab import parity_together
from pilotfish.daemon.lab.fakes import FakeEngine, LeakyEngine, RememberingEngine
from pilotfish.daemon.lab.parity_mixes import N_MIXES, SLOTS, Drafting, mixes
from pilotfish.daemon.lab.parity_pins import Compared
from pilotfish.daemon.lab.parity_together import JointCourse
from pilotfish.daemon.lab.subjects import Weights
from pilotfish.daemon.lab.workloads import MODES, Workload
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions
from tests.daemon.lab.fake_subject import subject
from tests.fakes.state import SHARED

CHATS = [Workload(f"chat {i}", "open", f"say {i} and {i} once more", "") for i in range(8)]


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course on a fake engine: `course(engine, ...)`."""

    def made(make, **options) -> JointCourse:
        monkeypatch.setattr(parity_together.JointCourse, "_load", lambda self, title, path: subject(make()))
        given = {"depths": (0, 0, 0, 20), "n_predict": 8, "engine": "fake", "options": EngineOptions(), **options}
        return JointCourse([Weights("fake", lambda: tmp_path)], CHATS, MODES, texts=CHATS, **given)

    return made


def test_the_eight_mixes_have_every_chat_once_and_no_two_are_alike():
    found = mixes(8)
    assert len(found) == N_MIXES
    assert all(sorted(mix.order) == list(range(8)) for mix in found)
    assert len({(mix.order, mix.staggers) for mix in found}) == N_MIXES
    assert {mix.width for mix in found} == {2, 4, 8, 16}
    assert mixes(8) == found


def test_every_second_one_drafts_in_a_mixed_mix():
    assert [Drafting.MIXED.drafts(place) for place in range(4)] == [True, False, True, False]
    assert not any(Drafting.OFF.drafts(place) for place in range(4))


def test_on_an_exact_engine_every_id_is_equal_in_every_mix(course):
    asked = course(partial(RememberingEngine, slots=SLOTS, joins=16, n_ctx=400))
    trials = list(asked.run())
    assert len(trials) == asked.total == 2 * N_MIXES * 4 * 8 * 2
    assert [trial for trial in trials if not trial.equal] == []
    drafted, accepted, shared = Counter(), Counter(), Counter()
    for trial in trials:
        drafted[trial.drafting] += trial.drafted
        accepted[trial.drafting] += trial.accepted
        shared[trial.prompts, trial.drafting] += trial.shared
    assert drafted["off"] == 0 < accepted["mixed"] < drafted["mixed"]
    assert 0 < accepted["on"] < drafted["on"]
    assert all(shared.values())
    assert any(trial.restored for trial in trials)
    assert any(trial.forgotten for trial in trials)


@pytest.mark.parametrize(
    ("make", "prompts"),
    [
        (partial(LeakyEngine, slots=SLOTS), "lane"),  # rows depend on who else is there
        (partial(LeakyEngine, slots=SLOTS), "fast"),
        (partial(FakeEngine, slots=SLOTS, noise=True, joins=16), "lane"),  # and on the forward's width
        (partial(RememberingEngine, slots=SLOTS, confused=True), "lane"),  # and on whether their cells were put aside
    ],
)
def test_on_an_engine_that_is_not_there_are_differences(course, make, prompts):
    trials = list(course(make, prompts=(prompts,), mixes=2).run())
    assert any(not trial.equal for trial in trials if trial.drafting == "off")
    unequal = next(trial for trial in trials if not trial.equal)
    assert f"mix {unequal.mix}" in unequal.label
    assert unequal.to_json()["equal"] is False


def test_a_run_goes_on_where_it_was_broken_off(course, monkeypatch):
    make = partial(RememberingEngine, slots=SLOTS, joins=16)
    whole = list(course(make, mixes=2).run())
    left = {(trial.prompts, trial.mix, trial.drafting) for trial in whole[40:]}  # the third of them was broken off
    asked = []
    run = parity_together.Gathering.run
    monkeypatch.setattr(parity_together.Gathering, "run", lambda self, party: asked.append(party) or run(self, party))
    again = list(course(make, mixes=2, compared=Compared(whole[:40])).run())
    assert [trial.pins for trial in again] == [trial.pins for trial in whole]
    assert len([party for party in asked if party.order.value != "one by one"]) == len(left)
    asked.clear()
    assert list(course(make, mixes=2, compared=Compared(whole)).run()) == whole
    assert asked == []


def test_other_settings_are_another_comparison(course):
    make = partial(RememberingEngine, slots=SLOTS, joins=16)
    one = [trial.pins for trial in course(make, mixes=1, prompts=("lane",)).run()]
    assert len(set(one)) == len(one)
    for change in ({"n_predict": 9}, {"modes": MODES[:1]}, {"depths": (0,)}):
        other = course(make, mixes=1, prompts=("lane",))
        for name, value in change.items():
            setattr(other, name, value)
        assert not {trial.pins for trial in other.run()} & set(one)


def test_what_cannot_be_had_is_named(course, tmp_path):
    asked = course(partial(FakeEngine, slots=SLOTS), mixes=1)

    def absent():
        raise EngineError("needs libllama")

    asked.weights = [Weights("absent", absent), Weights("here", lambda: tmp_path)]
    assert next(asked.run()).tokens > 0
    assert asked.missing == {"absent": "needs libllama"}


SHORT = (
    "Count: one, two, three, one, two,",
    "Say Alpha, Beta, Alpha, Beta, Alpha.",
    "What is the capital of France?",
    "List three fruits: apple, pear,",
    "Name a colour and a number.",
)


@pytest.fixture
def real(quantized, monkeypatch):
    """A course on a real engine: one mix of five short chats, seeded."""
    monkeypatch.setenv("PILOTFISH_STATE", str(SHARED))

    def made(verifier: str, kind: str, **options) -> JointCourse:
        # Longer than the system's message, so that a slot is not kept for another chat's sake.
        chats = [Workload(f"chat {i}", "open", f"{text} " * 5, "") for i, text in enumerate(SHORT)]
        given = {"depths": (0,), "n_predict": 6, "mixes": 1, "draftings": (Drafting.ON, Drafting.MIXED), **options}
        threads = EngineOptions(threads=1)
        weights = [Weights(kind, partial(quantized, kind))]
        return JointCourse(weights, chats, MODES[1:], texts=chats, engine=verifier, options=threads, **given)

    return made


@pytest.mark.model
@pytest.mark.parametrize(
    ("verifier", "kind", "how", "restored"),
    [
        ("llama", "Q4_0", {"prompts": ("lane",)}, True),
        ("ik", "Q4_K_M", {"prompts": ("fast",)}, True),
        # Long enough to be read apart; and whose lane keeps whole blocks, where these prompts have none.
        pytest.param("llama", "Q4_0", {"prompts": ("fast",), "depths": (0, 0, 520)}, True, marks=pytest.mark.long),
        pytest.param("ik", "Q4_0", {"prompts": ("lane",)}, False, marks=pytest.mark.long),
    ],
)
def test_on_a_real_engine_every_id_is_equal(real, verifier, kind, how, restored):
    trials = list(real(verifier, kind, **how).run())
    assert [trial.label for trial in trials if not trial.equal] == []
    assert sum(trial.accepted for trial in trials) > 0
    assert any(trial.shared for trial in trials) is (verifier == "llama")
    assert any(trial.restored for trial in trials) is restored


@pytest.mark.model
def test_the_control_finds_differences(real):
    """Forwards are shared in a setting in which joint rows are others, and the same comparison fails."""
    asked = real(
        "llama", "Q4_K_M", n_predict=40, prompts=("lane",), draftings=(Drafting.OFF, Drafting.ON), control=True
    )
    different = next(trial for trial in asked.run() if not trial.equal)
    assert different.shared
