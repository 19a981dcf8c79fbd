"""The one check of what a drafter proposes, for all who take a proposal: guards, draft hosts, remote drafters."""

from __future__ import annotations

from itertools import takewhile
from numbers import Real
from typing import TypeGuard, cast

from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.types import EMPTY, Proposal


def checked(proposal: object, n_vocab: int, k: int | None = None) -> Proposal:
    """A sound proposal with what `proposal` says: plain ints from 0 to `n_vocab` - 1, confidences from 0 to 1.

    Up to `k` ids are taken; any number when it is None. The first id outside the vocabulary ends the proposal, because
    a model's output may be wider than its vocabulary. Raises ProtocolViolation, saying what to do, for anything else:
    another type than a Proposal with tuples (or lists) in it, more ids than asked for, an id that is no int (a numpy
    integer and a bool are none), an id outside the vocabulary in the first place, more confidences than ids, and
    confidences that are no probabilities. What the proposal's own code raises is raised.
    """
    if not isinstance(proposal, Proposal):
        raise ProtocolViolation(f"proposed a {type(proposal).__name__}, not a Proposal; return a Proposal, or EMPTY")
    tokens, confidence = _listed(proposal.tokens, "tokens"), _listed(proposal.confidence, "confidence")
    if k is not None and len(tokens) > k:
        raise ProtocolViolation(f"proposed {len(tokens)} tokens, not at most {k}; cut them: tokens[:k]")
    if len(confidence) > len(tokens):
        raise ProtocolViolation(
            f"proposed {len(confidence)} confidences for {len(tokens)} tokens; give at most one for each"
        )
    ids, sure = _ids(tokens, n_vocab), _probabilities(confidence)
    if tokens and not ids:
        raise ProtocolViolation(f"proposed an id outside the vocabulary of {n_vocab} ids; end the proposal before it")
    return Proposal(ids, sure[: len(ids)]) if ids else EMPTY


def is_probability(value: object) -> TypeGuard[float]:
    """Whether it is a real number from 0 to 1; True and False are none."""
    if type(value) is float:  # what nearly all are; a proposal is checked in every round
        return 0 <= value <= 1
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return bool(value <= 1 and not value < 0)


def _listed(value: object, what: str) -> tuple[object, ...]:
    # Exactly these two: a class of the drafter's own could say one thing here and another thing later.
    if type(value) is tuple or type(value) is list:
        return tuple(value)
    raise ProtocolViolation(f"proposed a {type(value).__name__} as its {what}; make it a tuple")


def _ids(tokens: tuple[object, ...], n_vocab: int) -> tuple[int, ...]:
    """The ids in front of the first one outside the vocabulary."""
    for kind in set(map(type, tokens)) - {int}:
        raise ProtocolViolation(f"proposed a {kind.__name__} as an id; make every id an int: int(token)")
    ids = cast("tuple[int, ...]", tokens)
    if ids and min(ids) >= 0 and max(ids) < n_vocab:
        return ids
    return tuple(takewhile(lambda token: 0 <= token < n_vocab, ids))


def _probabilities(values: tuple[object, ...]) -> tuple[float, ...]:
    for sure in values:
        if not is_probability(sure):
            raise ProtocolViolation(f"proposed a confidence of {_named(sure)}; it is a probability, from 0 to 1")
    return tuple(map(float, cast("tuple[float, ...]", values)))


def _named(value: object) -> str:
    return repr(value) if type(value) is float else f"type {type(value).__name__}"
