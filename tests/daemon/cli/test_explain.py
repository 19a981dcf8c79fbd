"""`pilotfish explain`, from the controller's own description to the tables."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli
from pilotfish.daemon.config.types import Config, Drafters
from pilotfish.daemon.control.governing import governing
from pilotfish.daemon.core.controller import Controller, Eager
from pilotfish.daemon.core.costs import RECENT, CostModel, Round
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine, fake_pin
from pilotfish.daemon.lab.fakes.scripted_drafters import ScriptedDrafter
from pilotfish.daemon.registry.plugin_sources import PluginSource
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import UsageError, WorldError
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import Proposal
from tests.daemon.control.governed import FakeRunner
from tests.daemon.runner.scripted import ScriptedGenerator, serving
from tests.fakes.session import SameIds
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("home")


class Plugin:
    @hookimpl
    def pilotfish_register_drafters(self, register):
        register("scripted", lambda config: ScriptedDrafter(lambda history, k: [5] * k))

    @hookimpl
    def pilotfish_register_bridges(self, register):
        register("same", lambda ours, theirs: SameIds())


@pytest.fixture
def generator() -> Generator:
    """A loaded model that has answered one request with drafts."""
    settings = Config(drafters=Drafters(order=("scripted",)))
    registry = Registry(settings)
    registry.add(PluginSource("scripted", "folder", "here", Plugin))
    generator = Generator(FakeEngine(), fake_pin(), registry, settings, controller=Eager)
    generator.generate(GenerationRequest((3, 4), n_predict=12), lambda output_tokens: None, lambda: False)
    return generator


@contextmanager
def listening(generator: object, *registered: str, socket=None) -> Iterator[int]:
    """The port of a runner's server; with names, a daemon that knows a runner of each at that port."""
    ready, done, ports = threading.Event(), threading.Event(), []

    async def work() -> None:
        async with serving(generator) as client:
            ports.append(client.port)
            if not registered:
                ready.set()
                await asyncio.to_thread(done.wait)
                return
            async with governing() as daemon:
                links = [FakeRunner(socket, model, pid=i) for i, model in enumerate(registered)]
                for runner in links:
                    object.__setattr__(runner.link._registration, "port", client.port)
                    runner.link.start()
                await until(lambda: len(daemon.governor.status()["runners"]) == len(registered))
                ready.set()
                await asyncio.to_thread(done.wait)
                for runner in links:
                    await runner.link.close()

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        assert ready.wait(20)
        yield ports[0]
    finally:
        done.set()
        thread.join()


def explain(*words: str):
    return CliRunner().invoke(cli, ["explain", *words])


def test_by_port_the_json_has_everything(generator):
    with listening(generator) as port:
        (found,) = json.loads(explain("--port", str(port), "--json").stdout)
    assert found["model"] == "fake:latest"
    assert found["lane"]["widths"] == list(generator.engine.lane.widths)
    assert found["totals"]["requests"] == 1
    costs = found["model_of_costs"]
    assert sum(one["committed"] for one in costs["rounds"]) == 12
    assert {one["drafter"] for one in costs["rounds"]} >= {"scripted"}
    assert {cost["context"][0] for cost in costs["costs"]} == {0}
    assert all(cost["measured_here"] and cost["samples"] > 0 for cost in costs["costs"])
    assert sum(row["seen"] for row in costs["acceptance"]) > 0
    assert found["request"]["position"] == 14
    assert {choice["drafter"] for choice in found["request"]["choice"]} == {"scripted"}


def test_the_tables_name_costs_acceptance_choice_account_and_rounds(generator):
    with listening(generator) as port:
        shown = explain("--port", str(port))
    assert shown.exit_code == 0, shown.output
    for words in (
        "fake:latest: ", "a forward costs", "drafts are right", "would be verified now",
        "account of the last answer", "the last rounds",
    ):  # fmt: skip
        assert words in shown.output


def test_a_model_that_has_answered_nothing_yet_is_shown_too():
    fresh = Generator(FakeEngine(), fake_pin(), Registry(), Config())
    with listening(fresh) as port:
        shown = explain("--port", str(port))
    assert shown.exit_code == 0, shown.output
    assert "0 answers" in shown.output


def test_the_daemon_knows_where_a_model_is(generator, socket):
    with listening(generator, "smollm2:135m", "other:1b", socket=socket):
        assert len(json.loads(explain("smollm2:135M", "--json").stdout)) == 1
        assert len(json.loads(explain("--json").stdout)) == 2
        failed = explain("third:1b")
    assert isinstance(failed.exception, UsageError)
    assert "third:1b is not loaded by pilotfish; loaded now: smollm2:135m, other:1b" in str(failed.exception)


def test_without_a_daemon_the_remedy_is_named(home):
    failed = explain()
    assert isinstance(failed.exception, UsageError)
    assert "--port" in str(failed.exception)


def test_nobody_on_that_port_and_somebody_else_there():
    failed = explain("--port", "9")
    assert isinstance(failed.exception, WorldError)
    assert "no runner answers on port 9" in str(failed.exception)
    with listening(ScriptedGenerator()) as port:
        failed = explain("--port", str(port))
    assert isinstance(failed.exception, WorldError)
    assert "no pilotfish runner of this version" in str(failed.exception)


def round_of(width: int, seconds: float, position: int = 10, accepted: int = 0) -> Round:
    proposal = Proposal((0,) * (width - 1), (0.9,) * (width - 1))
    drafter = "scripted" if width > 1 else ""
    return Round(position, width, drafter, proposal, accepted, accepted + 1, 0.0, seconds, seconds)


def test_costs_are_told_in_plain_steps_and_those_of_a_certificate_apart():
    costs = CostModel((1, 2, 4))
    costs.seed([(1, 10, 1.0), (2, 10, 1.5), (4, 10, 2.5)])
    costs.observe_round(round_of(1, 0.01))
    costs.observe_round(round_of(2, 0.013, accepted=1))
    told = {(cost["width"], cost["measured_here"]): cost["plain_steps"] for cost in costs.describe()["costs"]}
    assert told == {(1, True): 1.0, (2, True): pytest.approx(1.3), (4, False): 2.5}


def test_only_the_last_rounds_are_kept():
    costs = CostModel((1, 2))
    for position in range(RECENT + 6):
        costs.observe_round(round_of(1, 0.01, position))
    assert [one["position"] for one in costs.describe()["rounds"]] == list(range(6, RECENT + 6))


def test_the_choice_told_is_the_choice_made():
    costs = CostModel((1, 2, 4))
    controller = Controller(costs, max_width=4)
    for width, seconds in ((1, 0.01), (1, 0.01), (4, 0.012)):
        controller.observe_round(round_of(width, seconds, accepted=width - 1))
    told = controller.describe()
    assert told["proposed"] == 3
    for choice in told["choice"]:
        proposal = Proposal((0,) * 3, (choice["confidence"],) * 3)
        assert choice["verify"] == controller.choose(proposal, "scripted", told["position"])
    assert told["choice"][-1]["verify"] == 3
    assert told["gain"] == pytest.approx(controller.gain)
