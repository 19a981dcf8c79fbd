"""Where a drafter is put through its checks: sessions that keep their own history and compare every acknowledgement."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pilotfish.daemon.lab.conformance.patience import CallWatch, Hangs
from pilotfish.daemon.registry.plugin_trouble import describe, locate
from pilotfish.hooks.declared import vocabulary_of
from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.hidden import TakesHidden
from pilotfish.hooks.history import History
from pilotfish.hooks.proposals import checked
from pilotfish.hooks.protocols import Drafter, DraftSession
from pilotfish.hooks.types import Ack, TargetPin, TokenizerPin, WeightPin

PROMPT = (5, 6, 7, 8, 9, 5, 6, 7)
N_VOCAB = 32
SESSION = ("propose", "commit", "rollback", "close")


class Nonconformance(ProtocolViolation):
    """A plugin does not do what a check demands; the message says what was seen and what to do."""


def made_up_target() -> TargetPin:
    """A target that is no file: enough for every drafter that only looks at ids."""
    weights = (WeightPin("sha256:" + "0" * 64, Path("/nowhere/conformance.gguf"), 0),)
    return TargetPin("conformance:latest", weights, TokenizerPin("made up for conformance", "none", N_VOCAB))


@dataclass(frozen=True, slots=True)
class Harness:
    """A drafter with what its sessions are opened on. `prompt` are ids of the drafter's vocabulary.

    With `deterministic` the same history must always give the same proposal.
    """

    drafter: Drafter
    target: TargetPin = field(default_factory=made_up_target)
    prompt: Sequence[int] = PROMPT
    deterministic: bool = False
    long: int = 20_000  # ids in a long history
    rounds: int = 100  # in a long session
    watch: CallWatch = field(default_factory=CallWatch)

    @property
    def n_vocab(self) -> int:
        """How many ids the drafter may use: those of its own vocabulary, or else the target's."""
        vocabulary = vocabulary_of(self.drafter)
        return (vocabulary.pin if vocabulary is not None else self.target.tokenizer).n_vocab

    def open(self, prompt: Sequence[int] | None = None) -> Session:
        """A session on `prompt`, which the caller closes."""
        ids = list(self.prompt if prompt is None else prompt)
        with supervised(self.watch, "open", f"open(target, {_shown(ids)})"):
            session = self.drafter.open(self.target, list(ids))
        missing = [name for name in SESSION if not callable(getattr(session, name, None))]
        if missing:
            raise Nonconformance(
                f"open returned a {type(session).__name__} without {' and '.join(missing)}; "
                "see DraftSession in pilotfish.hooks.protocols"
            )
        return Session(self, session, ids)

    @contextmanager
    def session(self, prompt: Sequence[int] | None = None) -> Iterator[Session]:
        """A session that is closed at the end, once."""
        session = self.open(prompt)
        try:
            yield session
        except BaseException:
            with contextlib.suppress(Nonconformance, Hangs):  # the first error is the one to tell
                session.close()
            raise
        session.close()


class Session:
    """A drafter's session, with the history that it ought to have. Every acknowledgement is compared with it."""

    def __init__(self, harness: Harness, session: DraftSession, prompt: Sequence[int]) -> None:
        self.expected = History(prompt)
        self._harness = harness
        self._session = session

    @property
    def takes_hidden(self) -> bool:
        """Whether it can be given the target's activations."""
        return isinstance(self._session, TakesHidden)

    def propose(self, k: int) -> object:
        """The drafter's answer as it is, whatever it is."""
        with supervised(self._harness.watch, "propose", f"propose({k})"):
            return self._session.propose(k)

    def guess(self, k: int) -> list[int]:
        """Of the drafter's proposal the ids that can be used, as pilotfish would take them."""
        proposal = self.propose(k)
        try:
            return list(checked(proposal, self._harness.n_vocab, k).tokens)
        except ProtocolViolation:
            return []

    def commit(self, tokens: Sequence[int]) -> Ack:
        """Commit `tokens`; raises Nonconformance unless exactly the history with them is acknowledged."""
        call = f"commit({_shown(tokens)})"
        with supervised(self._harness.watch, "commit", call):
            ack = self._session.commit(list(tokens))
        return self._compare(call, ack, self.expected.commit(tokens))

    def rollback(self) -> Ack:
        """Roll back; raises Nonconformance unless the committed history is acknowledged."""
        with supervised(self._harness.watch, "rollback", "rollback()"):
            ack = self._session.rollback()
        return self._compare("rollback()", ack, self.expected.ack())

    def close(self) -> None:
        with supervised(self._harness.watch, "close", "close()"):
            self._session.close()

    def _compare(self, call: str, ack: object, expected: Ack) -> Ack:
        if not isinstance(ack, Ack):
            raise Nonconformance(
                f"{call} returned a {type(ack).__name__}, not an Ack; return self.history.commit(tokens) from commit "
                "and self.history.ack() from rollback"
            )
        if ack != expected:
            raise Nonconformance(f"{call} acknowledged {_difference(ack, expected)}")
        kept = getattr(self._session, "history", None)
        if isinstance(kept, History) and kept.tokens != self.expected.tokens:
            raise Nonconformance(
                f"before {call} the history's array was changed in place: it holds {len(kept.tokens)} ids, "
                f"{len(self.expected)} were committed; only read `tokens`, or copy it: list(tokens)"
            )
        return ack


@contextmanager
def supervised(watch: CallWatch, operation: str, shown: str, patience: float | None = None) -> Iterator[None]:
    """Around one call of a plugin: what it raises becomes a Nonconformance that names the call and the line."""
    try:
        with watch.call(operation, shown, patience):
            yield
    except (Hangs, Nonconformance):
        raise
    except BaseException as error:
        where = locate(error, "")
        at = f" at {where}" if where else ""
        raise Nonconformance(f"{shown} raised {describe(error)}{at}; {_REMEDIES.get(operation, _NEVER)}") from error


_NEVER = "it must never raise"
_REMEDIES = {
    "propose": "answer EMPTY when there is nothing to propose",
    "open": "refuse in `load` or with empty proposals, not in `open`",
    "commit": "any ids of the vocabulary may be committed, proposed or not",
    "footprint": "it may only raise ModelNotFound, BrokenModel or ConfigError, when the table is at fault",
    "load": "see to what it says",
    "import": "a plugin may only define and register things when it is loaded",
    "build": "a factory loads nothing, and raises ConfigError when its table is wrong",
}


def _difference(ack: Ack, expected: Ack) -> str:
    if ack.position != expected.position:
        return (
            f"{ack.position} ids, but the history has {expected.position}; count what was committed, all of it and "
            "nothing else"
        )
    if ack.digest != expected.digest:
        return (
            f"{ack.position} ids with another digest than the committed ones have; keep the ids that commit was given, "
            "not the proposed ones, and take the digest from pilotfish.hooks.History"
        )
    return f"round {ack.round}, but {expected.round} commits were made; a round is one commit, however many tokens"


def _shown(ids: Sequence[int]) -> str:
    return str(list(ids)) if len(ids) <= 8 else f"[{', '.join(map(str, ids[:6]))}, ... {len(ids)} ids]"
