"""A runner under a daemon: what a plan changes, and when."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.daemon.config.reader import parse
from pilotfish.daemon.config.types import Config, Drafters, Engine, Plugins, Speculation
from pilotfish.daemon.control.plans import Plan, plugin_fingerprint
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.core.live import Sight
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine, fake_pin
from pilotfish.daemon.registry.registry import Registry
from pilotfish.daemon.runner.daemon_link import Follower, registration_of
from pilotfish.daemon.runner.launch_arguments import Launch, in_force
from pilotfish.manifests.store import Store
from tests.manifests.builders import tiny_gguf

TEN_LINES = """
    from pilotfish.hooks import HistoryDrafter, hookimpl

    class Mine(HistoryDrafter):
        name = "mine"

        def suggest(self, tokens, k):
            return tokens[:k]

    @hookimpl
    def pilotfish_register_drafters(register):
        register("mine", Mine)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "plugins"
    folder.mkdir(mode=0o700)
    return folder


def plan_of(config: Config) -> Plan:
    return Plan(config, plugin_fingerprint(config.plugins.folders))


def begun(config: Config) -> tuple[Generator, Follower]:
    generator = Generator(FakeEngine(), fake_pin(), Registry.load(config), config)
    return generator, Follower(generator, plan_of(config), lambda engine: None)


def ask(generator: Generator) -> list[int]:
    ids: list[int] = []
    generator.generate(GenerationRequest((3, 4), n_predict=8), lambda e: ids.extend(x.token for x in e), lambda: False)
    return ids


async def test_a_switch_is_followed_without_loading_plugins_again():
    config = Config()
    generator, follower = begun(config)
    registry = generator.registry
    await follower.follow(plan_of(replace(config, speculation=Speculation(enabled=False))))
    assert follower.report().standing.state == "off"
    assert generator.registry is registry
    await follower.follow(plan_of(config))
    assert follower.report().standing.state == "active"


async def test_what_is_to_be_said_of_the_engine_outlives_new_plugins(folder):
    generator, follower = begun(Config())
    generator.registry.remark("engine ik: it was built for another processor")
    registry = generator.registry
    await follower.follow(plan_of(Config(plugins=Plugins((folder,)))))
    assert generator.registry is not registry
    assert follower.report().problems == ("engine ik: it was built for another processor",)


async def test_a_drafter_dropped_into_a_folder_is_in_use_from_the_next_request_on(folder):
    config = Config(drafters=Drafters(("mine", "suffix")), plugins=Plugins((folder,)))
    generator, follower = begun(config)
    plain = ask(generator)
    assert follower.report().drafters == ("suffix",)
    assert "no drafter is named 'mine'" in follower.report().problems[0]

    (folder / "mine.py").write_text(textwrap.dedent(TEN_LINES))
    (folder / "mine.py").chmod(0o600)
    await follower.follow(plan_of(config))
    assert follower.report().drafters == ("mine", "suffix")
    assert follower.report().problems == ()
    assert ask(generator) == plain

    (folder / "mine.py").write_text("raise RuntimeError('broken')")
    await follower.follow(plan_of(config))
    assert follower.report().drafters == ("suffix",)
    assert "RuntimeError: broken" in follower.report().problems[0]
    assert "mine.py:1" in follower.report().problems[0]
    assert ask(generator) == plain
    assert follower.report().totals.requests == 3


async def test_other_engine_settings_are_handed_on_once():
    config, told = Config(), []
    follower = Follower(begun(config)[0], plan_of(config), told.append)
    await follower.follow(plan_of(replace(config, speculation=Speculation(enabled=False))))
    assert told == []
    patient = Engine(sidecar_idle_s=7)
    for _ in range(2):
        await follower.follow(plan_of(replace(config, engine=patient)))
    assert told == [patient]


class TestNames:
    @pytest.fixture
    def store(self, tmp_path):
        store = Store(tmp_path / "models")
        for name in ("b:1", "a:1"):
            store.add_gguf(name, tiny_gguf(tmp_path / "tiny.gguf"))
        return store

    def test_a_blob_is_every_model_that_uses_it(self, store):
        launch = Launch(store.blob(store.manifest("b:1").of_type("application/vnd.ollama.image.model")[0])).with_users()
        assert launch.names == ("a:1", "b:1")
        generator, _ = begun(Config())
        registration = registration_of(generator, launch, 4711)
        assert (registration.model, registration.aliases, registration.port) == ("a:1", ("b:1",), 4711)

    def test_one_that_is_off_is_enough(self, store):
        launch = Launch(store.blob(store.manifest("b:1").of_type("application/vnd.ollama.image.model")[0])).with_users()
        config = parse({"models": {"b:1": {"enabled": False}}})
        assert in_force(config, launch).speculation.enabled is False

    def test_a_bare_file_goes_by_its_pins_name(self, tmp_path):
        generator, _ = begun(Config())
        assert registration_of(generator, Launch(tmp_path / "x.gguf").with_users(), 1).model == "fake:latest"


async def test_a_viewer_is_told_what_happens_and_what_was_learned_and_only_while_it_looks():
    generator, follower = begun(Config())
    ask(generator)
    follower.watch(Sight.TEXT)
    told = follower.live(100)
    assert [event["kind"] for event in told] == ["explained"]
    assert told[0]["explained"]["totals"]["requests"] == 1
    ask(generator)
    assert [event["kind"] for event in follower.live(100)][:2] == ["opened", "round"], "and not explained again at once"
    follower.watch(Sight.NOTHING)
    ask(generator)
    assert [event for event in follower.live(100) if event["kind"] != "explained"] == []


async def test_reports_are_by_the_program_that_asked():
    generator, follower = begun(Config())
    request = GenerationRequest((3, 4), n_predict=8, client="curl")
    generator.generate(request, lambda tokens: None, lambda: False)
    ask(generator)
    assert {name: totals.requests for name, totals in follower.report().clients.items()} == {"curl": 1, "": 1}
