"""A draft host whose drafter has something to load: when it does, what does not fit, and loads that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.drafters.local_host import admit_alone
from pilotfish.daemon.drafthost.draft_protocol import parse_wanted
from pilotfish.daemon.drafthost.served import Served
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import AdmissionRefused, ModelNotFound, UsageError
from pilotfish.hooks.types import EngineOptions, Footprint, Placement, TargetPin
from pilotfish.lab.fakes import HiddenDrafter, ScriptedDrafter
from tests.daemon.drafthost.clients import ANYWHERE, TARGET, WANTED, Client
from tests.fakes.far import local_host, serving
from tests.fakes.misbehaviour import RAISED


class LoadedDrafter:
    """Has something to load; `calls` tells what happened to it."""

    name, placement = "loaded", Placement.THREAD
    vocabulary = None

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.broken = ""
        self.needs: Footprint | None = Footprint(1000, 10)

    def footprint(self, host: object, target: TargetPin, options: EngineOptions) -> Footprint | None:
        return self.needs

    def load(self, host: object, target: TargetPin, options: EngineOptions) -> None:
        if self.broken:
            raise ModelNotFound(self.broken)
        self.calls.append(("load", target.name, options.n_ctx))

    def unload(self) -> None:
        self.calls.append("unload")

    def open(self, target: TargetPin, prompt: Any) -> Any:
        return ScriptedDrafter().open(target, prompt)


def test_a_drafter_is_loaded_once_for_a_target_and_again_for_another():
    drafter = LoadedDrafter()
    other = {**WANTED, "target": {**TARGET, "name": "other:latest"}}
    with serving(drafter, ANYWHERE, queue=0.05) as (url, _):
        client = Client(url)
        client.ask("POST", "/load", WANTED)
        session = client.open(n_ctx=100)[1]["session"]
        assert client.ask("POST", "/load", other)[0] == 503
        client.turn(session, ["close"])
        assert client.ask("POST", "/load", other)[0] == 200
        assert client.ask("POST", "/load", {**other, "n_ctx": 1024})[0] == 200
        client.http.close()
    loads = [("load", "fake:latest", 512), ("load", "other:latest", 512), ("load", "other:latest", 1024)]
    assert [call for call in drafter.calls if call != "unload"] == loads
    assert drafter.calls[-1] == "unload"


def test_a_load_that_fails_says_why():
    drafter = LoadedDrafter()
    drafter.broken = "model 'tiny' not found"
    with serving(drafter, ANYWHERE) as (url, _):
        client = Client(url)
        status, answer = client.ask("POST", "/load", WANTED)
        assert (status, answer["error"]["message"]) == (409, "model 'tiny' not found")
        client.http.close()


def test_what_does_not_fit_is_not_loaded():
    drafter = LoadedDrafter()
    served = Served(drafter, Registry(Config()), local_host(Path("/nonexistent")), admit_alone)
    drafter.needs = Footprint(1 << 50, 10)
    with pytest.raises(AdmissionRefused, match="loaded does not fit: weights"):
        served.load(parse_wanted(WANTED))
    assert drafter.calls == []
    drafter.needs = None
    assert served.load(parse_wanted(WANTED)) == "ids"


def test_a_drafter_on_activations_is_refused_by_its_name():
    served = Served(HiddenDrafter(), Registry(Config()), local_host(Path("/nonexistent")))
    with pytest.raises(UsageError, match="hidden asks for the target's activations, which are not sent"):
        served.load(parse_wanted(WANTED))


@pytest.mark.parametrize("error", RAISED)
def test_a_drafter_that_cannot_unload_is_loaded_for_the_next_target_nevertheless(error):
    class Stuck(LoadedDrafter):
        def unload(self) -> None:
            super().unload()
            raise error

    drafter = Stuck()
    other = {**WANTED, "target": {**TARGET, "name": "other:latest"}}
    with serving(drafter, ANYWHERE, queue=0.05) as (url, _):
        client = Client(url)
        assert client.ask("POST", "/load", WANTED)[0] == 200
        assert client.ask("POST", "/load", other)[0] == 200
        assert client.open(target=other["target"])[0] == 200
        client.http.close()
    assert drafter.calls[-1] == "unload"  # at the end, too


@pytest.mark.parametrize("error", RAISED)
def test_whatever_a_load_raises_is_an_answer(error):
    class Broken(LoadedDrafter):
        def load(self, host: object, target: TargetPin, options: EngineOptions) -> None:
            raise error

    with serving(Broken(), ANYWHERE) as (url, _):
        client = Client(url)
        assert client.ask("POST", "/load", WANTED)[0] in (409, 500)
        assert client.ask("GET", "")[0] == 200
        client.http.close()
