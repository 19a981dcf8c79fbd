"""Drafters with something to load: nobody waits for them, and what became of them can be read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.drafters.member import FIRST_RETRY
from pilotfish.daemon.drafters.pool import DrafterPool
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.daemon.lab.fakes.fake_engine import fake_pin
from pilotfish.daemon.lab.fakes.fake_vocabulary import FakeVocabulary
from pilotfish.daemon.lab.fakes.scripted_drafters import ScriptedDrafter
from pilotfish.daemon.registry.containment import said
from pilotfish.daemon.registry.plugin_sources import PluginSource
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks import hookimpl
from pilotfish.hooks.errors import AdmissionRefused, ConfigError, EngineError, WorldError
from pilotfish.hooks.types import Footprint, Placement, TokenizerPin
from tests.fakes.misbehaviour import RAISED

SOON = 60.0  # seconds; far more than anything here takes
PIN = fake_pin(32)
OWN = FakeVocabulary(PIN.tokenizer)


class Heavy(ScriptedDrafter):
    """Loads when it is let; remembers what was done with it."""

    def __init__(self, name: str = "heavy", load: Callable[[], None] = lambda: None) -> None:
        super().__init__(name=name, placement=Placement.THREAD)
        self.vocabulary = None
        self.done: list[str] = []
        self._load = load

    def footprint(self, host, target, options) -> Footprint:
        return Footprint(100, 20)

    def load(self, host, target, options) -> None:
        self._load()
        self.done.append("load")

    def unload(self) -> None:
        self.done.append("unload")


def registry_of(*drafters: ScriptedDrafter) -> Registry:
    class Plugin:
        @hookimpl
        def pilotfish_register_drafters(self, register: Any, config: Mapping[str, Any]) -> None:
            for drafter in drafters:
                register(drafter.name, lambda table, drafter=drafter: drafter)

    registry = Registry(Config())
    registry.add(PluginSource("test", "folder", "test", Plugin))
    registry.add(PluginSource("bridges", "built-in", "identity", _identity))
    return registry


def _identity() -> Any:
    from pilotfish.plugins.bridges import identity

    return identity


def pool(**kwargs: Any) -> DrafterPool:
    return DrafterPool(PIN, OWN, 32, host=kwargs.pop("host", object()), **kwargs)


def states(pool: DrafterPool) -> dict[str, str]:
    return {name: about["state"] for name, about in pool.describe().items()}


def test_a_request_is_answered_without_a_drafter_that_is_still_loading():
    let = threading.Event()
    drafter = Heavy(load=lambda: let.wait(SOON) and None)
    registry, line = registry_of(drafter), pool()
    line.use(registry, ["heavy"])
    assert line.guards(registry, [1, 2], 0.2) == []
    assert states(line) == {"heavy": "loading"}
    let.set()
    assert line.settle(SOON)
    assert states(line) == {"heavy": "ready"}
    assert [guard.name for guard in line.guards(registry, [1, 2], 0.2)] == ["heavy"]
    line.close()
    assert drafter.done == ["load", "unload"]


def test_a_load_that_fails_is_tried_again_later():
    clock, tries = FakeClock(), []

    def load() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise EngineError("no such server; start one")

    registry, line = registry_of(drafter := Heavy(load=load)), pool(clock=clock)
    line.use(registry, ["heavy"])
    assert line.settle(SOON)
    assert states(line) == {"heavy": "failed"}
    assert "no such server" in line.describe()["heavy"]["about"]
    line.guards(registry, [1], 0.2)
    assert line.settle(SOON)
    assert len(tries) == 1
    clock.advance(FIRST_RETRY)
    line.guards(registry, [1], 0.2)
    assert line.settle(SOON)
    assert states(line) == {"heavy": "ready"}
    assert drafter.done == ["unload", "load"]


def test_one_that_does_not_fit_is_refused_with_the_sum():
    def admit(name: str, footprint: Footprint, others: object) -> None:
        raise ConfigError(f"{name} needs {footprint.total} bytes, 50 are free")

    registry, line = registry_of(drafter := Heavy()), pool(admit=admit)
    line.use(registry, ["heavy"])
    assert line.settle(SOON)
    assert line.describe()["heavy"] == {"state": "refused", "about": "heavy needs 120 bytes, 50 are free"}
    assert "load" not in drafter.done


def test_one_that_did_not_fit_is_let_in_once_there_is_room():
    clock, room = FakeClock(), [50]

    def admit(name: str, footprint: Footprint, others: object) -> None:
        if footprint.total > room[0]:
            raise AdmissionRefused(f"{name} needs {footprint.total} bytes, {room[0]} are free")

    registry, line = registry_of(drafter := Heavy()), pool(admit=admit, clock=clock)
    line.use(registry, ["heavy"])
    assert line.settle(SOON)
    assert line.describe()["heavy"] == {"state": "refused", "about": "heavy needs 120 bytes, 50 are free"}
    room[0] = 200
    line.guards(registry, [1], 0.2)
    assert line.settle(SOON)
    assert states(line) == {"heavy": "refused"}  # too soon
    clock.advance(FIRST_RETRY)
    line.guards(registry, [1], 0.2)
    assert line.settle(SOON)
    assert states(line) == {"heavy": "ready"}
    assert "load" in drafter.done


def test_a_vocabulary_that_nothing_joins_to_the_targets_is_a_reason():
    drafter = Heavy()
    drafter.vocabulary = FakeVocabulary(TokenizerPin("other", "gpt2", 8))
    registry, line = registry_of(drafter), pool()
    line.use(registry, ["heavy"])
    assert line.settle(SOON)
    assert states(line) == {"heavy": "refused"}
    assert drafter.done == ["load", "unload"]


def test_under_pressure_the_drafter_goes_first_and_comes_back_when_there_is_room():
    clock, why = FakeClock(), ["the system has 1 MB left"]
    registry, line = registry_of(drafter := Heavy()), pool(clock=clock, pressed=lambda loaded: why[0])
    line.use(registry, ["heavy"])
    assert line.settle(SOON)
    assert line.guards(registry, [1], 0.2) == []
    assert line.describe()["heavy"] == {"state": "unloaded", "about": "the system has 1 MB left"}
    clock.advance(FIRST_RETRY)
    line.guards(registry, [1], 0.2)
    assert line.settle(SOON)
    assert states(line) == {"heavy": "unloaded"}
    why[0] = ""
    line.guards(registry, [1], 0.2)
    assert line.settle(SOON)
    assert states(line) == {"heavy": "ready"}
    assert drafter.done == ["load", "unload", "load"]


def test_a_drafter_that_is_no_longer_wanted_gives_back_what_it_holds_and_others_stay():
    first, second = Heavy("first"), Heavy("second")
    registry, line = registry_of(first, second), pool()
    line.use(registry, ["first", "second"])
    assert line.settle(SOON)
    line.use(registry, ["second"])
    line.close()
    assert first.done == ["load", "unload"]
    assert second.done == ["load", "unload"]
    assert states(line) == {}


def test_without_a_host_nothing_is_loaded():
    registry, line = registry_of(drafter := Heavy()), pool(host=None)
    line.use(registry, ["heavy"])
    assert line.settle(SOON)
    assert states(line) == {"heavy": "refused"}
    assert "load" not in drafter.done


def test_one_that_wants_a_process_of_its_own_is_wrapped_and_kept_across_a_reload():
    drafter = Heavy()
    drafter.placement = Placement.PROCESS
    wrapped: list[Heavy] = []

    def wrap(inner: Heavy) -> Heavy:
        outer = Heavy(inner.name)
        wrapped.append(outer)
        return outer

    registry, line = registry_of(drafter), pool(wrap=wrap)
    line.use(registry, ["heavy"])
    line.use(registry, ["heavy"])
    assert line.settle(SOON)
    assert len(wrapped) == 1
    assert wrapped[0].done == ["load"]
    assert drafter.done == []


def test_guards_come_in_the_order_of_preference():
    registry, line = registry_of(ScriptedDrafter(name="b"), ScriptedDrafter(name="a")), pool()
    line.use(registry, ["b", "a"])
    assert [guard.name for guard in line.guards(registry, [1], 0.2)] == ["b", "a"]


def test_a_drafters_own_word_is_shown():
    drafter = Heavy()
    drafter.status = lambda: "http://far: 3 ms away"
    registry, line = registry_of(drafter), pool()
    line.use(registry, ["heavy"])
    assert line.settle(SOON)
    assert line.describe()["heavy"]["about"] == "http://far: 3 ms away"


@pytest.mark.parametrize("error", [WorldError("gone"), *RAISED])
def test_whatever_a_load_raises_stays_with_its_drafter(error):
    def load() -> None:
        raise error

    registry, line = registry_of(Heavy(load=load), ScriptedDrafter(name="well")), pool()
    line.use(registry, ["heavy", "well"])
    assert line.settle(SOON)
    assert [guard.name for guard in line.guards(registry, [1], 0.2)] == ["well"]
    assert states(line) == {"heavy": "failed", "well": "ready"}
    assert said(error) in line.describe()["heavy"]["about"]


class Stuck(Heavy):
    """Does not give back what it holds."""

    def __init__(self, error: BaseException, load: Callable[[], None] = lambda: None) -> None:
        super().__init__(load=load)
        self.error: BaseException | None = error

    def unload(self) -> None:
        super().unload()
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", RAISED)
def test_one_that_can_neither_load_nor_unload_has_failed_and_is_tried_again(error):
    def load() -> None:
        if drafter.error is not None:
            raise WorldError("no such server")

    clock, drafter = FakeClock(), Stuck(error, load)
    registry, line = registry_of(drafter), pool(clock=clock)
    line.use(registry, ["heavy"])
    assert line.settle(SOON)
    assert states(line) == {"heavy": "failed"}
    about = line.describe()["heavy"]["about"]
    assert about.startswith(f"no such server; unload raised {type(error).__name__}")
    assert about.endswith("tried again in 5 s")
    drafter.error = None
    clock.advance(FIRST_RETRY)
    line.guards(registry, [1], 0.2)
    assert line.settle(SOON)
    assert states(line) == {"heavy": "ready"}


@pytest.mark.parametrize("error", RAISED)
def test_one_that_does_not_give_its_memory_back_under_pressure_has_failed(error):
    registry, line = registry_of(Stuck(error)), pool(pressed=lambda loaded: "the system has 1 MB left")
    line.use(registry, ["heavy"])
    assert line.settle(SOON)
    assert line.guards(registry, [1], 0.2) == []
    assert line.settle(SOON)
    assert states(line) == {"heavy": "failed"}
    about = line.describe()["heavy"]["about"]
    assert about.startswith(f"the system has 1 MB left; unload raised {type(error).__name__}")


@pytest.mark.parametrize("error", RAISED)
def test_one_that_cannot_unload_does_not_keep_the_others_from_it(error):
    stuck, well = Stuck(error), Heavy("well")
    registry, line = registry_of(stuck, well), pool()
    line.use(registry, ["heavy", "well"])
    assert line.settle(SOON)
    line.close()
    assert stuck.done == well.done == ["load", "unload"]


def test_a_footprint_that_is_none_is_a_failure_and_nothing_is_loaded():
    drafter = Heavy()
    drafter.footprint = lambda host, target, options: 5
    registry, line = registry_of(drafter), pool(pressed=lambda loaded: str(sum(f.total for f in loaded) > 1000 or ""))
    line.use(registry, ["heavy"])
    assert line.settle(SOON)
    assert line.guards(registry, [1], 0.2) == []
    assert "footprint returned a int" in line.describe()["heavy"]["about"]
    assert "load" not in drafter.done


@pytest.mark.parametrize("error", RAISED)
@pytest.mark.parametrize("attribute", ["vocabulary", "alive", "status"])
def test_an_attribute_that_raises_costs_its_drafter_a_guard_at_most(attribute, error):
    def broken(self: object) -> Any:
        raise error

    class Odd(ScriptedDrafter):
        pass

    odd = Odd(name="odd", placement=Placement.THREAD)
    setattr(Odd, attribute, property(broken))
    registry, line = registry_of(odd, ScriptedDrafter(name="well")), pool()
    line.use(registry, ["odd", "well"])
    names = [guard.name for guard in line.guards(registry, [1], 0.2)]
    if attribute == "status":
        assert names == ["odd", "well"]
        assert f"status raised {type(error).__name__}" in line.describe()["odd"]["about"]
    else:
        assert names == ["well"]


def test_refused_proposals_are_counted_over_all_requests_and_shown():
    registry, line = registry_of(drafter := ScriptedDrafter(lambda history, k: ["five"])), pool()
    line.use(registry, ["scripted"])
    assert line.describe()["scripted"]["about"] == ""
    for _ in range(2):
        (guard,) = line.guards(registry, [1], 0.2)
        assert guard.propose(4).tokens == ()
        guard.close()
    about = "2 proposals refused, the last: proposed a str as an id; make every id an int: int(token)"
    assert line.describe()["scripted"] == {"state": "ready", "about": about}
    drafter.status = lambda: "all is\nwell\x1b[31m"
    assert line.describe()["scripted"]["about"] == f"all is well [31m; {about}"


@pytest.mark.parametrize("error", RAISED)
def test_where_nobody_can_tell_whether_memory_is_short_requests_are_answered_with_what_is_loaded(error):
    def pressed(loaded: object) -> str:
        raise error

    registry, line = registry_of(Heavy()), pool(pressed=pressed)
    line.use(registry, ["heavy"])
    assert line.settle(SOON)
    assert [guard.name for guard in line.guards(registry, [1], 0.2)] == ["heavy"]
    assert states(line) == {"heavy": "ready"}


def test_where_the_system_has_no_thread_left_a_drafter_has_failed_and_is_tried_again(monkeypatch):
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    clock = FakeClock()
    registry, line = registry_of(Heavy()), pool(clock=clock)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        line.use(registry, ["heavy"])
        assert line.guards(registry, [1], 0.2) == []
    assert line.describe()["heavy"]["about"] == "the system has no thread left for it; tried again in 5 s"
    clock.advance(FIRST_RETRY)
    line.guards(registry, [1], 0.2)
    assert line.settle(SOON)
    assert states(line) == {"heavy": "ready"}
