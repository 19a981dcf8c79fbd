"""What every bridge must do, as far as that shows between vocabularies that are made up.

Whether a bridge translates well shows only between real tokenizers (`pilotfish pair`); that it declines what it
cannot join, stays inside the vocabularies and answers the same question twice alike shows here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pilotfish.daemon.lab.conformance.harness import Nonconformance
from pilotfish.daemon.lab.fakes.fake_vocabulary import FakeVocabulary
from pilotfish.hooks.protocols import Bridge, Vocabulary
from pilotfish.hooks.types import EMPTY, Proposal, TokenizerPin
from pilotfish.hooks.vocabulary import BYTES, ByteVocabulary

TEXT = "the pilot fish swims ahead, \u00e0 gauche, of the other fish \U0001f41f."


Pair = tuple[Vocabulary, Vocabulary]  # the drafter's and the target's


def made_up_vocabulary(name: str, words: Sequence[str]) -> FakeVocabulary:
    """Every byte is an id, and so are a few `words` after them and one special id at the end."""
    pieces = [bytes((i,)) for i in range(BYTES)] + [word.encode() for word in words] + [b"<|end|>"]
    end = len(pieces) - 1
    return FakeVocabulary(TokenizerPin(f"made up: {name}", "none", len(pieces), eos=end), pieces, [end])


def made_up_pairs() -> Iterator[tuple[str, Pair]]:
    """Pairs of vocabularies with what they are: equal ones, overlapping ones, and bytes against words."""
    words = made_up_vocabulary("words", ("the ", "fish", " of", "swim", "ahead"))
    others = made_up_vocabulary("other words", ("the", " fish", "of ", "ahead", "swims"))
    yield "one vocabulary on both sides", (words, words)
    yield "vocabularies that share most ids' bytes", (others, words)
    yield "bytes on the drafter's side", (ByteVocabulary(), words)


@dataclass(frozen=True, slots=True)
class BridgeHarness:
    """A pair of vocabularies, and how to open a fresh bridge between them."""

    open: Callable[[], Bridge]
    pair: Pair


def nothing_becomes_nothing(harness: BridgeHarness) -> None:
    """No ids become no ids, in both directions."""
    bridge = harness.open()
    there = list(bridge.to_drafter([]))
    back = bridge.to_target(EMPTY)
    if there or not isinstance(back, Proposal) or back.tokens:
        raise Nonconformance(
            f"to_drafter([]) gave {there} and to_target(EMPTY) gave {back!r}; answer an empty list and EMPTY"
        )


def stays_in_the_vocabularies(harness: BridgeHarness) -> None:
    """Drafter ids are ids of the drafter's vocabulary, target ids of the target's, and no confidence is left over."""
    for there, back in _conversation(harness):
        _check_ids("to_drafter", there, harness.pair[0])
        _check_ids("to_target", back.tokens, harness.pair[1])
        if len(back.confidence) > len(back.tokens):
            raise Nonconformance(
                f"to_target gave {len(back.confidence)} confidences for {len(back.tokens)} tokens; cut both alike"
            )


def asking_changes_nothing(harness: BridgeHarness) -> None:
    """`to_target` gives the same answer however often it is asked, and no call changes the ids it is given."""
    bridge = harness.open()
    given = list(harness.pair[1].encode(TEXT))
    before = list(given)
    bridge.to_drafter(given)
    if given != before:
        raise Nonconformance("to_drafter changed the list that it was given; copy it first")
    proposal = Proposal(tuple(harness.pair[0].encode(" fish")))
    first, second = bridge.to_target(proposal), bridge.to_target(proposal)
    if first != second:
        raise Nonconformance(
            f"to_target gave {first.tokens} and then {second.tokens} for one proposal; only to_drafter may move on"
        )


BRIDGE_CHECKS = (nothing_becomes_nothing, stays_in_the_vocabularies, asking_changes_nothing)


def _conversation(harness: BridgeHarness) -> Iterator[tuple[Sequence[int], Proposal]]:
    """A prompt and then commits of one token each, with a proposal after each, special ids and halves of characters."""
    drafter, target = harness.pair
    bridge = harness.open()
    ids = target.encode(TEXT)
    special = [token for token in range(target.pin.n_vocab) if target.special(token)]
    guesses = [*drafter.encode(" fish"), *drafter.encode("\U0001f41f")[:2]]
    for committed in (ids[: len(ids) // 2], *([token] for token in ids[len(ids) // 2 :]), special):
        there = list(bridge.to_drafter(committed))
        yield there, bridge.to_target(Proposal(tuple(guesses), (0.5,) * len(guesses)))


def _check_ids(what: str, ids: Sequence[int], vocabulary: Vocabulary) -> None:
    for token in ids:
        if type(token) is not int or not 0 <= token < vocabulary.pin.n_vocab:
            raise Nonconformance(
                f"{what} gave {token!r}, which is no id of the {vocabulary.pin.n_vocab} there are; end before it"
            )
