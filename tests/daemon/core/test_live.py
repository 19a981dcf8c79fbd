"""What a viewer is told of requests, and that nobody is told anything while nobody looks."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.core.controller import Eager
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.core.generator import OTHERS, Generator
from pilotfish.daemon.core.live import MOST, LiveFeed, LiveRequest, Sight
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine, fake_pin
from pilotfish.daemon.registry.registry import Registry

REPEATING = [*range(5, 9)] * 12


def generator() -> Generator:
    config = Config()
    engine = FakeEngine(script=REPEATING)
    return Generator(engine, fake_pin(), Registry.load(config), config, controller=Eager)


def ask(asked: Generator, client: str = "curl") -> list[int]:
    ids: list[int] = []
    wanted = GenerationRequest((3, 4), n_predict=40, client=client)
    asked.generate(wanted, lambda e: ids.extend(x.token for x in e), lambda: False)
    return ids


def test_a_viewer_gets_every_round_with_its_text():
    asked = generator()
    asked.live.watch(Sight.TEXT)
    ids = ask(asked)
    events = asked.live.take()
    rounds = [event for event in events if event["kind"] == "round"]
    assert [event["kind"] for event in events] == ["opened", *["round"] * len(rounds), "ended"]
    assert events[0]["client"] == "curl"
    assert events[0]["prompt_tokens"] == 2
    assert sum(event["committed"] for event in rounds) == len(ids) == events[-1]["committed"]
    assert "".join(piece["text"] for event in rounds for piece in event["pieces"]).split() == [str(i) for i in ids]
    drafted = [piece for event in rounds for piece in event["pieces"] if piece["drafted"]]
    assert sum(len(piece["text"].split()) for piece in drafted) == events[-1]["accepted"] > 0
    assert asked.live.take() == []


def test_text_is_for_those_who_may_see_it():
    asked = generator()
    asked.live.watch(Sight.ROUNDS)
    ask(asked)
    rounds = [event for event in asked.live.take() if event["kind"] == "round"]
    assert rounds
    assert all("pieces" not in event for event in rounds)


def test_without_a_viewer_no_round_is_told_to_anybody(monkeypatch):
    asked = generator()
    told: list[object] = []
    monkeypatch.setattr(LiveRequest, "round", lambda *arguments: told.append(arguments))
    assert ask(asked)
    assert told == []
    assert asked.live.take() == []
    assert asked.live.running == {}


def test_whoever_begins_to_look_in_the_middle_is_told_what_runs():
    asked = generator()
    running = asked.begin(GenerationRequest((3, 4), n_predict=40), lambda tokens: None, lambda: False)
    for _ in range(3):
        asked.turn((running,))
    asked.live.watch(Sight.ROUNDS)
    asked.turn((running,))
    asked.live.watch(Sight.TEXT)  # more of the same: nothing begins anew
    while not running.ended:
        asked.turn((running,))
    kinds = [(event["kind"], event.get("joined")) for event in asked.live.take()]
    assert kinds[0] == ("opened", True)
    assert kinds[-1] == ("ended", None)
    assert [kind for kind, _ in kinds].count("opened") == 1


class Meanwhile(dict):
    """The running requests of a feed; on another thread something happens as they change or are looked through."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self.thread = threading.Thread(target=happens, daemon=True)

    def _happen(self) -> None:
        self.thread.start()
        self.thread.join(0.2)  # it ends meanwhile unless it has to wait


class AsOneOpens(Meanwhile):
    def __setitem__(self, key: int, value: LiveRequest) -> None:
        super().__setitem__(key, value)
        self._happen()


class AsTheyAreTold(Meanwhile):
    def values(self) -> list[LiveRequest]:
        running = list(super().values())
        self._happen()
        return running


def test_whoever_begins_to_look_as_a_request_opens_is_told_of_it_once():
    feed = LiveFeed()
    feed.running = running = AsOneOpens(lambda: feed.watch(Sight.ROUNDS))
    feed.open("curl", 2, ())
    running.thread.join()
    assert [event["kind"] for event in feed.take()] == ["opened"]


def test_a_request_that_ends_as_a_viewer_is_told_of_it_ends_after_that():
    feed = LiveFeed()
    feed.running = running = AsTheyAreTold(lambda: request.ended(None, 0.0))
    request = feed.open("curl", 2, ())
    feed.watch(Sight.ROUNDS)
    running.thread.join()
    assert [event["kind"] for event in feed.take()] == ["opened", "ended"]


def test_what_waits_has_bounds_and_what_is_lost_is_counted():
    feed = LiveFeed()
    feed.watch(Sight.ROUNDS)
    for number in range(MOST + 3):
        feed.add({"kind": "round", "request": number})
    taken = feed.take()
    assert taken[0]["kind"] == "lost"
    assert taken[0]["count"] == 3
    assert taken[1]["request"] == 3
    feed.add({"kind": "round", "request": 0})
    feed.watch(Sight.NOTHING)
    assert feed.take() == []


def test_the_account_is_by_program_and_has_bounds():
    asked = generator()
    for number in range(40):
        ask(asked, f"program {number}")
    ask(asked, "program 0")
    assert asked.clients["program 0"].requests == 2
    assert len(asked.clients) == 33
    assert asked.clients[OTHERS].requests == 8
    assert sum(totals.requests for totals in asked.clients.values()) == asked.totals.requests
