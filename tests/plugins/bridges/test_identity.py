from __future__ import annotations

from dataclasses import replace

import pytest

from pilotfish.daemon.lab.fakes.fake_vocabulary import FakeVocabulary
from pilotfish.hooks.protocols import BridgeFactory, Vocabulary
from pilotfish.hooks.types import Proposal, TokenizerPin
from pilotfish.lab.conformance import BridgeConformance
from pilotfish.plugins.bridges.identity import open_bridge

PIN = TokenizerPin("a" * 64, "gpt2", 100, bos=1, eos=2)
OWN = FakeVocabulary(PIN)


class TestIdentity(BridgeConformance):
    @pytest.fixture
    def factory(self) -> BridgeFactory:
        return open_bridge

    @pytest.fixture
    def pair(self) -> tuple[Vocabulary, Vocabulary]:
        return OWN, OWN

    @pytest.fixture
    def strangers(self) -> tuple[Vocabulary, Vocabulary]:
        return OWN, FakeVocabulary(replace(PIN, fingerprint="b" * 64))


def test_ids_and_confidences_pass_through_unchanged() -> None:
    bridge = open_bridge(OWN, OWN)
    assert bridge is not None
    proposal = Proposal((4, 0, 99), (0.9, 0.8))
    assert bridge.to_target(proposal) == proposal
    assert list(bridge.to_drafter([4, 0, 99])) == [4, 0, 99]


def test_only_the_fingerprint_decides() -> None:
    same_tokens_by_another_account = replace(PIN, model="llama", eos=7)
    assert open_bridge(OWN, FakeVocabulary(same_tokens_by_another_account)) is not None
    assert open_bridge(OWN, FakeVocabulary(replace(PIN, fingerprint="A" * 64))) is None
