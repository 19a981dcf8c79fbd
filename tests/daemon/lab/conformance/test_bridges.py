"""Bridges of a plugin file on made-up vocabularies: what is wrong is caught, what cannot be told is said to be so."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.lab.conformance import Verdict
from pilotfish.daemon.lab.conformance.bridge_checks import made_up_pairs, made_up_vocabulary
from pilotfish.daemon.lab.conformance.plugin import Setup, examine_file
from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.protocols import Vocabulary
from tests.fakes.plugin_files import write

PLUGIN = """
import time

from pilotfish.hooks import EMPTY, Proposal, hookimpl


class Same:
    asked = 0

    def to_drafter(self, target_ids):
        {to_drafter}

    def to_target(self, proposal):
        {to_target}


def mine(drafter, target):
    {factory}


@hookimpl
def pilotfish_register_bridges(register):
    register("mine", mine)
"""

FACTORY = "return Same() if drafter.pin == target.pin else None"


def examine(folder: Path, to_drafter: str = "", to_target: str = "", factory: str = FACTORY) -> Verdict:
    folder.chmod(0o755)
    patience = 1.0 if "sleep" in factory else 60
    body = PLUGIN.format(
        to_drafter=to_drafter or "return list(target_ids)", to_target=to_target or "return proposal", factory=factory
    )
    [verdict] = examine_file(write(folder, "mine.py", body), Setup(Config(), patience=patience)).verdicts
    return verdict


def seen(verdict: Verdict) -> dict[str, str]:
    return {result.check.partition(",")[0]: result.seen for result in verdict.results if result.outcome == "failed"}


def test_a_sound_bridge_passes_on_the_pair_it_opens(tmp_path: Path) -> None:
    verdict = examine(tmp_path)
    assert (verdict.passed, verdict.kind, verdict.note) == (True, "bridge", "")
    assert len(verdict.results) == 4


def test_one_that_opens_for_nothing_is_said_not_to_be_checked(tmp_path: Path) -> None:
    verdict = examine(tmp_path, factory="return None")
    assert "its translations were not checked" in verdict.note
    assert verdict.passed


@pytest.mark.parametrize(
    ("fault", "check", "words"),
    [
        ({"factory": "return 1 // 0"}, "opens or declines", "ZeroDivisionError"),
        ({"factory": "return 5"}, "opens or declines", "int is not a Bridge"),
        ({"factory": "time.sleep(600)"}, "opens or declines", "had not returned after"),
        ({"to_drafter": "return [1]"}, "nothing becomes nothing", "to_drafter([]) gave [1]"),
        ({"to_target": "return Proposal((1,))"}, "nothing becomes nothing", "answer an empty list and EMPTY"),
        ({"to_drafter": "return [t + 250 for t in target_ids]"}, "stays in the vocabularies", "to_drafter gave"),
        ({"to_target": "return Proposal((999,) * len(proposal))"}, "stays in the vocabularies", "to_target gave 999"),
        (
            {"to_target": "return Proposal(proposal.tokens[:1], proposal.confidence)"},
            "stays in the vocabularies",
            "cut both alike",
        ),
        ({"to_target": "raise KeyError(7)"}, "nothing becomes nothing", "raised KeyError: 7 at"),
        (
            {"to_target": "self.asked += 1; return proposal.first(self.asked)"},
            "asking changes nothing",
            "only to_drafter may move on",
        ),
        (
            {"to_drafter": "out = list(target_ids); target_ids.clear(); return out"},
            "asking changes nothing",
            "changed the list",
        ),
    ],
)
def test_a_fault_is_caught(tmp_path: Path, fault: dict[str, str], check: str, words: str) -> None:
    verdict = examine(tmp_path, **fault)
    assert not verdict.passed
    assert words in seen(verdict)[check]


@pytest.mark.parametrize(
    ("label", "pair"), list(made_up_pairs()), ids=lambda value: value if type(value) is str else ""
)
def test_the_made_up_vocabularies_are_vocabularies(label: str, pair: tuple[Vocabulary, Vocabulary]) -> None:
    text = "the fish à gauche"
    for vocabulary in pair:
        assert isinstance(vocabulary, Vocabulary)
        ids = vocabulary.encode(text)
        assert b"".join(map(vocabulary.piece, ids)).decode() == text
        assert not any(map(vocabulary.special, ids))
        with pytest.raises(RequestError):
            vocabulary.piece(vocabulary.pin.n_vocab)


def test_words_are_one_id_and_the_last_id_is_special() -> None:
    words = made_up_vocabulary("x", ("fish",))
    assert words.encode("a fish") == [97, 32, 256]
    assert words.special(words.pin.n_vocab - 1)
