"""Bridges between the tokenizers of real families, over random splits of many kinds of text.

`PILOTFISH_TEST_SPLITS=10000` runs the full number of histories; a seeded few of them otherwise.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import cache
from itertools import permutations

import pytest

from pilotfish.daemon.lab.conformance.suites.bridge_suite import Pair
from pilotfish.daemon.lab.fakes.fake_vocabulary import FakeVocabulary
from pilotfish.hooks.protocols import BridgeFactory, Vocabulary
from pilotfish.hooks.sample_text import SAMPLE
from pilotfish.hooks.types import Proposal, TokenizerPin
from pilotfish.lab.conformance import BridgeConformance
from pilotfish.plugins.bridges import retokenize, vocab_map
from tests.plugins.bridges.histories import TEXTS, Maker, Session

pytestmark = pytest.mark.model

Family = Callable[[str], Vocabulary]
SPLITS = int(os.environ.get("PILOTFISH_TEST_SPLITS", "300"))
FAMILIES = ("smollm2", "qwen3", "gemma3", "trained", "bytes")
PAIRS = list(permutations(FAMILIES, 2))

maker_of = cache(Maker)


@pytest.mark.parametrize(("drafter", "target"), PAIRS)
def test_random_histories_never_break_it(family: Family, drafter: str, target: str) -> None:
    seeds = range(max(1, SPLITS // len(PAIRS)))
    rngs = [random.Random(f"{drafter} {target} {seed}") for seed in seeds]
    assert sum(live_through(rng, family(drafter), family(target)) for rng in rngs) > 0


def live_through(rng: random.Random, drafter: Vocabulary, target: Vocabulary) -> int:
    """How many ids the bridge made of suggestions."""
    bridge = retokenize.open_bridge(drafter, target)
    assert bridge is not None
    session = Session(bridge, drafter, target)
    ids = maker_of(target).ids(rng, "".join(rng.choice(TEXTS)[rng.randrange(8) :] for _ in range(2)))
    for _ in range(rng.randrange(2)):
        at = rng.randrange(len(ids) + 1)
        ids[at:at] = maker_of(target).disturbance(rng)
    at = rng.randrange(len(ids) + 1)
    session.commit(ids[:at])
    made = 0
    for _ in range(4):
        made += len(session.suggest(suggestion(rng, session, ids[at:])))
        width = rng.randrange(4)
        session.commit(ids[at : at + width])
        at += width
    return made


def suggestion(rng: random.Random, session: Session, rest: list[int]) -> Proposal:
    """What the target goes on with, or some other text, or any ids at all."""
    kind = rng.randrange(4)
    if kind < 2:
        text = b"".join(map(session.target.piece, rest[:20]))
        ids = session.drafter.encode(((session.held or b"") + text).decode("utf-8", "ignore"))
    elif kind == 2:
        ids = maker_of(session.drafter).ids(rng, rng.choice(TEXTS))
    else:
        ids = [rng.choice([rng.randrange(session.drafter.pin.n_vocab), -1, 10**9]) for _ in range(6)]
    ids = ids[: rng.randrange(12)]
    return Proposal(tuple(ids), tuple(rng.random() for _ in ids)[: rng.randrange(len(ids) + 1)])


@pytest.mark.parametrize(("drafter", "target"), [pair for pair in PAIRS if "bytes" not in pair])
def test_a_drafter_that_knows_the_text_is_understood(family: Family, drafter: str, target: str) -> None:
    """Most of its suggestions become the very ids that the target's tokenizer gives, wherever the text was cut."""
    ours, theirs = family(drafter), family(target)
    ids = theirs.encode(SAMPLE[:1500])
    proposed = right = 0
    for at in range(40, 140):
        bridge = retokenize.open_bridge(ours, theirs)
        assert isinstance(bridge, retokenize.RetokenizeBridge)
        session = Session(bridge, ours, theirs)
        session.commit(ids[:at])
        assert session.held is not None
        rest = session.held + b"".join(map(theirs.piece, ids[at : at + 12]))
        known = ours.encode("\n" + rest.decode())  # behind a line break, for tokenizers that begin with a space
        spelt = [ours.piece(token) for token in known]
        while b"".join(spelt) != rest and spelt:
            spelt, known = spelt[1:], known[1:]
        found = bridge.to_target(Proposal(tuple(known[:6])))
        proposed += bool(found.tokens)
        right += sum(a == b for a, b in zip(found.tokens, ids[at:], strict=False)) / max(1, len(found.tokens))
    assert proposed >= 90
    assert right / proposed >= 0.85  # measured: 0.88 to 1.0


@pytest.mark.parametrize(("drafter", "target"), [("qwen3", "smollm2"), ("trained", "qwen3"), ("bytes", "gemma3")])
def test_mapped_ids_spell_the_same(family: Family, drafter: str, target: str) -> None:
    """Between families, where the bridge would not open by itself, much has no counterpart."""
    ours, theirs = family(drafter), family(target)
    table = vocab_map.build_table(ours, theirs)
    proposed = 0
    for text in TEXTS:
        bridge = vocab_map.VocabMapBridge(table, ours, theirs)
        given = bridge.to_drafter(theirs.encode(text))
        assert b"".join(map(ours.piece, given)) == b"".join(map(theirs.piece, theirs.encode(text)))
        found = bridge.to_target(Proposal(tuple(ours.encode(text))))
        assert b"".join(map(ours.piece, ours.encode(text))).startswith(b"".join(map(theirs.piece, found.tokens)))
        proposed += len(found.tokens)
    assert proposed > 0


class TestRetokenizeBetweenFamilies(BridgeConformance):
    @pytest.fixture(params=["qwen3 smollm2", "trained gemma3", "smollm2 bytes", "bytes qwen3"])
    def pair(self, request: pytest.FixtureRequest, family: Family) -> Pair:
        drafter, target = request.param.split()
        return family(drafter), family(target)

    @pytest.fixture
    def factory(self) -> BridgeFactory:
        return retokenize.open_bridge

    @pytest.fixture
    def strangers(self, pair: Pair) -> Pair:
        return FakeVocabulary(TokenizerPin("numbers", "fake", 10)), pair[1]

    @pytest.fixture
    def ids(self, pair: Pair) -> list[int]:
        return pair[1].encode("one two\nthree, four")
