"""The drafter suite passes what is sound and catches what is not."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import pytest

from pilotfish.hooks import HistoryDrafter
from pilotfish.hooks.drafting import HistorySession
from pilotfish.hooks.history import History
from pilotfish.hooks.protocols import Drafter
from pilotfish.hooks.types import Ack, Proposal, TargetPin
from pilotfish.lab.conformance import DrafterConformance
from pilotfish.lab.fakes import ScriptedDrafter, fake_pin

PROMPT = [5, 6, 7, 8, 9, 5, 6, 7]


class TestScripted(DrafterConformance):
    @pytest.fixture
    def drafter(self) -> Drafter:
        return ScriptedDrafter(lambda history, k: [history[-1]] * k)


class TestTheBaseClass(DrafterConformance):
    @pytest.fixture
    def drafter(self) -> Drafter:
        return HistoryDrafter()


class _Broken(HistorySession):
    """A session with one fault, by the name of its class."""


class LosesTheLastToken(_Broken):
    def commit(self, tokens: Sequence[int]) -> Ack:
        return super().commit(list(tokens)[:-1])


class CountsTokensAsRounds(_Broken):
    def commit(self, tokens: Sequence[int]) -> Ack:
        for token in tokens:
            ack = super().commit([token])
        return ack


class KeepsItsProposal(_Broken):
    def propose(self, k: int) -> Proposal:
        self.history.commit([1] * k)
        return Proposal((1,) * k)


class ProposesTooMuch(_Broken):
    def propose(self, k: int) -> Proposal:
        return Proposal((1,) * (k + 1))


class ProposesJunk(_Broken):
    def propose(self, k: int) -> Proposal:
        return Proposal((40_000,) * k)


class IsTooSure(_Broken):
    def propose(self, k: int) -> Proposal:
        return Proposal((1,) * k, (1.5,) * k)


class CommitsWhatItProposed(_Broken):
    def propose(self, k: int) -> Proposal:
        self.last = [1] * k
        return Proposal((1,) * k)

    def commit(self, tokens: Sequence[int]) -> Ack:
        return super().commit(getattr(self, "last", tokens))


class RemembersTheLastSession(_Broken):
    kept = History()

    def __init__(self, drafter: HistoryDrafter, prompt: Sequence[int]) -> None:
        super().__init__(drafter, prompt)
        self.history = self.kept
        self.history.commit(prompt)


@pytest.mark.parametrize("session", _Broken.__subclasses__(), ids=lambda session: session.__name__)
def test_a_fault_is_caught(session: type[_Broken]) -> None:
    class Drafter(HistoryDrafter):
        name = "broken"

        def open(self, target: TargetPin, prompt: Sequence[int]) -> HistorySession:
            return session(self, prompt)

    assert failures(Drafter())


def test_no_fault_is_seen_in_a_sound_drafter() -> None:
    assert not failures(HistoryDrafter())


def failures(drafter: Drafter) -> list[str]:
    """The names of the suite's tests that fail for `drafter`."""
    suite, failed = DrafterConformance(), []
    for name in (name for name in dir(suite) if name.startswith("test_")):
        test = getattr(suite, name)
        parameters = inspect.signature(test).parameters
        extra = {key: value for key, value in {"k": 7, "seed": 0}.items() if key in parameters}
        try:
            test(drafter, fake_pin(), PROMPT, **extra)
        except AssertionError:
            failed.append(name)
    return failed
