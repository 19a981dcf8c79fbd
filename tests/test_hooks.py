"""Every hook is documented and has a test of its own here; histories keep their promise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pluggy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.daemon.config.types import Config, Drafters
from pilotfish.daemon.lab.fakes.fake_vocabulary import FakeVocabulary
from pilotfish.daemon.registry.plugin_sources import PluginSource
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks import History, HistoryDrafter, hookimpl, specs
from pilotfish.hooks.history import RunningDigest
from pilotfish.hooks.types import Ack, Lane, Proposal, SessionInfo, SessionReport, TargetPin, TokenizerPin
from pilotfish.lab.fakes import fake_pin

HOOKS = sorted(name for name in vars(specs) if name.startswith("pilotfish_"))
HERE = sys.modules[__name__]


def registry_with(plugin: object, config: Config | None = None) -> Registry:
    registry = Registry(config)
    assert registry.add(PluginSource("under-test", "folder", "here", lambda: plugin)), registry.problems
    return registry


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_is_documented_and_has_a_test_of_its_own(hook: str) -> None:
    function = getattr(specs, hook)
    assert function.__doc__, f"{hook} has no docstring"
    assert callable(getattr(HERE, f"test_hook_{hook.removeprefix('pilotfish_')}", None)), f"{hook} has no test"


def test_every_function_named_like_a_hook_is_one() -> None:
    manager = pluggy.PluginManager(specs.PROJECT)
    manager.add_hookspecs(specs)
    assert sorted(name for name in vars(manager.hook) if not name.startswith("_")) == HOOKS


def test_hook_register_drafters() -> None:
    class Plugin:
        @hookimpl
        def pilotfish_register_drafters(self, register: Callable[[str, Any], None], config: Mapping[str, Any]) -> None:
            self.order = config["drafters"]["order"]
            register("history", HistoryDrafter)

    plugin = Plugin()
    registry = registry_with(plugin, Config(drafters=Drafters(order=("history", "suffix"))))
    assert registry.drafters == ("history",)
    assert isinstance(registry.drafter("history"), HistoryDrafter)
    assert plugin.order == ("history", "suffix")


def test_hook_register_bridges() -> None:
    class Through:
        def to_drafter(self, target_ids: Sequence[int]) -> Sequence[int]:
            return target_ids

        def to_target(self, proposal: Proposal) -> Proposal:
            return proposal

    class Plugin:
        @hookimpl
        def pilotfish_register_bridges(self, register: Callable[[str, Any], None]) -> None:
            register("never", lambda drafter, target: None)
            register("through", lambda drafter, target: Through())

    own = FakeVocabulary(TokenizerPin("a" * 64, "gpt2", 100))
    found = registry_with(Plugin()).bridge(own, own)
    assert found is not None
    assert found[0] == "through"


def test_hook_register_verifiers() -> None:
    class Null:
        name = "null"

        def __init__(self, config: Mapping[str, Any]) -> None: ...

        def load(self, pin: TargetPin, lane: Lane | None, options: object) -> None: ...

    class Plugin:
        @hookimpl
        def pilotfish_register_verifiers(self, register: Callable[[str, Any], None]) -> None:
            register("null", Null)

    registry = registry_with(Plugin())
    assert registry.verifiers == ("null",)
    assert isinstance(registry.verifier("null"), Null)


def test_hook_choose_drafters() -> None:
    class Plugin:
        @hookimpl
        def pilotfish_choose_drafters(self, target: TargetPin, available: Sequence[str]) -> Sequence[str] | None:
            return list(reversed(available)) if target.name == "fake:latest" else None

    registry = registry_with(Plugin())
    assert registry.choose(fake_pin(), ["a", "b"]) == ("b", "a")
    other = TargetPin("other", (), fake_pin().tokenizer)
    assert registry.choose(other, ["a", "b"]) == ("a", "b")


def test_hook_session_opened() -> None:
    class Plugin:
        @hookimpl
        def pilotfish_session_opened(self, session: SessionInfo) -> None:
            self.session = session

    plugin, session = Plugin(), SessionInfo(fake_pin(), Lane(), ("suffix",), prompt_tokens=3)
    registry_with(plugin).notify_opened(session)
    assert plugin.session == session


def test_hook_session_closed() -> None:
    class Plugin:
        @hookimpl
        def pilotfish_session_closed(self, session: SessionInfo, report: SessionReport) -> None:
            self.closed = session, report

    plugin, session = Plugin(), SessionInfo(fake_pin(), Lane())
    report = SessionReport(committed=7, rounds=2, dropped={"slow": "too slow"})
    registry_with(plugin).notify_closed(session, report)
    assert plugin.closed == (session, report)


def test_hook_model_pinned() -> None:
    class Plugin:
        @hookimpl
        def pilotfish_model_pinned(self, pin: TargetPin) -> None:
            self.pin = pin

    plugin = Plugin()
    registry_with(plugin).notify_pinned(fake_pin())
    assert plugin.pin == fake_pin()


IDS = st.lists(st.integers(0, 2**31 - 1), max_size=40)


class TestHistory:
    @given(prompt=IDS, tokens=IDS)
    def test_n_commits_of_one_equal_one_of_n(self, prompt: list[int], tokens: list[int]) -> None:
        singly, at_once = History(prompt), History(prompt)
        for token in tokens:
            singly.commit([token])
        at_once.commit(tokens)
        assert singly.tokens == at_once.tokens
        assert singly.ack() == Ack(len(tokens), *position_and_digest(at_once))

    @given(prompt=IDS, tokens=IDS)
    def test_where_the_prompt_ends_is_not_in_the_digest(self, prompt: list[int], tokens: list[int]) -> None:
        grown = History(prompt)
        grown.commit(tokens)
        assert position_and_digest(grown) == position_and_digest(History(prompt + tokens))

    @given(a=IDS, b=IDS)
    def test_the_digest_tells_two_histories_apart(self, a: list[int], b: list[int]) -> None:
        assert (a == b) == (History(a).ack() == History(b).ack())

    @given(prompt=IDS, commits=st.lists(IDS, max_size=5))
    def test_the_running_digest_expects_what_a_history_acknowledges(
        self, prompt: list[int], commits: list[list[int]]
    ) -> None:
        history, expected = History(prompt), RunningDigest(prompt)
        assert history.ack() == expected.ack()
        for tokens in commits:
            assert history.commit(tokens) == expected.commit(tokens)

    @pytest.mark.parametrize("junk", [[1, 2**40], [1, "2"], [1, None]])
    def test_ids_that_are_none_leave_it_as_it_was(self, junk: list[Any]) -> None:
        history = History([1, 2, 3])
        before = history.ack()
        with pytest.raises((TypeError, OverflowError)):
            history.commit(junk)
        assert history.ack() == before
        assert list(history.tokens) == [1, 2, 3]

    def test_an_acknowledgement_does_not_change_with_the_history(self) -> None:
        history = History([1, 2])
        ack = history.ack()
        history.commit([3])
        assert ack == History([1, 2]).ack()
        assert (history.round, len(history)) == (1, 3)


def position_and_digest(history: History) -> tuple[int, str]:
    ack = history.ack()
    return ack.position, ack.digest
