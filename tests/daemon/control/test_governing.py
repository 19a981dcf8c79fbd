"""A daemon and the disk: what is saved, broken, deleted and put back while it runs."""

from __future__ import annotations

import json
import logging
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pilotfish.daemon.control.control_client import ask_status
from pilotfish.daemon.control.governing import governing
from pilotfish.daemon.http.connection import Limits
from pilotfish.hooks.errors import ConfigError
from pilotfish.manifests.store import Store
from tests.daemon.control.governed import running, save, settled
from tests.fakes.peers import crowding
from tests.waiting import until

WIDTH = "[speculation]\nmax_width = {}\n"

DRAFTER = """
from pilotfish.hooks import HistoryDrafter, hookimpl

class Mine(HistoryDrafter):
    name = "mine"

@hookimpl
def pilotfish_register_drafters(register):
    register("mine", Mine)
"""


@asynccontextmanager
async def daemon(path: Path | None = None, store: Store | None = None):
    async with governing(path, store) as found:
        assert found is not None
        yield found.governor


class TestConfig:
    async def test_every_save_by_rename_is_one_reload_and_none_is_lost(self, config):
        save(config, WIDTH.format(2))
        async with daemon() as governor:
            for reloads, width in ((2, 3), (3, 4), (4, 5)):
                save(config, WIDTH.format(width))
                await until(lambda width=width: governor.config.speculation.max_width == width)
                await settled()
                assert governor.reloads == reloads

    async def test_a_save_of_the_same_text_counts_too(self, config):
        save(config, WIDTH.format(2))
        async with daemon() as governor:
            save(config, WIDTH.format(2))
            await until(lambda: governor.reloads == 2)

    async def test_saves_in_quick_succession_end_with_the_last(self, config):
        save(config, WIDTH.format(2))
        async with daemon() as governor:
            for width in range(3, 60):
                save(config, WIDTH.format(width))
            await until(lambda: governor.config.speculation.max_width == 59)

    async def test_writing_in_place_works_as_well(self, config):
        config.write_text(WIDTH.format(2))
        async with daemon() as governor:
            config.write_text(WIDTH.format(3))
            await until(lambda: governor.config.speculation.max_width == 3)

    @pytest.mark.parametrize(
        ("accident", "why"),
        [
            (lambda path: save(path, ""), "is empty"),
            (lambda path: path.write_text("[speculation]\nmax_wid"), "not valid TOML"),
            (lambda path: save(path, WIDTH.format(99)), "speculation.max_width: expected 1 to 64, got 99"),
            (lambda path: path.unlink(), "is not there"),
        ],
        ids=["emptied", "half written", "wrong", "deleted"],
    )
    async def test_after_an_accident_the_last_good_one_stays_in_force(self, config, socket, caplog, accident, why):
        save(config, WIDTH.format(2))
        with caplog.at_level(logging.WARNING, logger="pilotfish.daemon"):
            async with daemon() as governor:
                accident(config)
                await until(lambda: governor.config_error)
                assert governor.config.speculation.max_width == 2
                status = await ask_status(socket)
                assert why in status["config"]["error"]
                assert why in caplog.text

                save(config, WIDTH.format(3))
                await until(lambda: governor.config.speculation.max_width == 3)
                assert governor.config_error == ""

    async def test_a_daemon_that_starts_on_a_broken_file_uses_the_last_good_one(self, config):
        save(config, WIDTH.format(2))
        async with daemon():
            pass
        save(config, "[")
        async with daemon() as governor:
            assert governor.config.speculation.max_width == 2
            assert "not valid TOML" in governor.config_error

    async def test_a_file_whose_folder_does_not_exist_yet_is_noticed(self, home):
        async with daemon() as governor:
            path = home / "config" / "pilotfish" / "pilotfish.toml"
            path.parent.mkdir(parents=True)
            save(path, WIDTH.format(2))
            await until(lambda: governor.config.path == path)

    async def test_the_users_file_takes_over_from_the_systems(self, home, config):
        (home / "etc").mkdir()
        save(home / "etc" / "pilotfish.toml", WIDTH.format(2))
        async with daemon() as governor:
            assert governor.config.speculation.max_width == 2
            save(config, WIDTH.format(3))
            await until(lambda: governor.config.path == config)

    async def test_a_linked_file_is_followed(self, home, config):
        (home / "dotfiles").mkdir()
        real = home / "dotfiles" / "pilotfish.toml"
        save(real, WIDTH.format(2))
        config.symlink_to(real)
        async with daemon() as governor:
            save(real, WIDTH.format(3))
            await until(lambda: governor.config.speculation.max_width == 3)


class TestPlugins:
    @pytest.fixture
    def folder(self, home, config):
        folder = home / "plugins"
        folder.mkdir(mode=0o700)
        save(config, f"[plugins]\nfolders = [{str(folder)!r}]\n")
        return folder

    async def test_a_file_that_comes_changes_or_goes_is_a_new_generation(self, folder, socket):
        async with daemon() as governor, running(socket) as runner:
            await until(lambda: runner.plans)
            seen = [runner.plans[-1]]
            for change in (
                lambda path: save(path, DRAFTER),
                lambda path: save(path, DRAFTER + "# another\n"),
                lambda path: path.chmod(0o600),
                lambda path: path.unlink(),
            ):
                change(folder / "mine.py")
                await until(lambda: runner.plans[-1].generation > seen[-1].generation)
                seen.append(runner.plans[-1])
            assert len({plan.plugins for plan in seen[:-1]}) == 4
            assert seen[-1].plugins == seen[0].plugins
            assert governor.generation == seen[-1].generation

    async def test_what_is_no_plugin_changes_nothing(self, folder):
        async with daemon() as governor:
            before = governor.generation
            for name in ("notes.txt", ".mine.py.swp", "_helper.py", ".mine.py"):
                (folder / name).write_text("x")
            await settled()
            assert governor.generation == before

    async def test_a_folder_that_is_made_later_is_noticed(self, home, config):
        folder = home / "later" / "plugins"
        save(config, f"[plugins]\nfolders = [{str(folder)!r}]\n")
        async with daemon() as governor:
            before = governor.generation
            folder.mkdir(parents=True)
            (folder / "mine.py").write_text(DRAFTER)
            await until(lambda: governor.generation > before)

    async def test_a_folder_that_the_config_names_later_is_watched(self, home, config):
        folder = home / "plugins"
        folder.mkdir()
        async with daemon() as governor:
            save(config, f"[plugins]\nfolders = [{str(folder)!r}]\n")
            await until(lambda: governor.config.plugins.folders)
            before = governor.generation
            (folder / "mine.py").write_text(DRAFTER)
            await until(lambda: governor.generation > before)


class TestPins:
    @pytest.fixture
    def store(self, home):
        return Store(home / "models")

    OBSERVER = """
from pilotfish.hooks import hookimpl

@hookimpl
def pilotfish_model_pinned(pin):
    with open({notes!r}, "a") as file:
        print(pin.name, pin.manifest_digest, file=file)
"""

    async def test_a_model_that_appears_is_pinned_and_observers_are_told(self, home, config, store, tiny):
        (home / "plugins").mkdir(mode=0o700)
        (home / "plugins" / "observer.py").write_text(self.OBSERVER.format(notes=str(home / "notes")))
        save(config, f"[plugins]\nfolders = [{str(home / 'plugins')!r}]\n")
        notes = home / "notes"
        notes.touch()
        async with daemon(store=store):
            first = store.add_gguf("tiny:1m", tiny)
            await until(lambda: notes.read_text() == f"tiny:1m {first.digest}\n")

            second = store.add_gguf("tiny:1m", tiny, system="Be brief.")
            await until(lambda: notes.read_text() == f"tiny:1m {first.digest}\ntiny:1m {second.digest}\n")

    async def test_a_broken_manifest_is_reported_and_the_daemon_lives(self, store, tiny, socket, caplog):
        store.add_gguf("tiny:1m", tiny)
        async with daemon(store=store):
            broken = store.manifests / "registry.ollama.ai" / "library" / "tiny" / "broken"
            broken.write_text(json.dumps({"layers": 5}))
            await until(lambda: "tiny:broken: not pinned" in caplog.text)
            assert "tiny:1m" not in caplog.text  # it did not change
            assert await ask_status(socket)


class TestStart:
    async def test_a_second_daemon_finds_the_first(self, socket):
        async with daemon(), governing() as second:
            assert second is None
            assert (await ask_status(socket))["daemon"]["pid"]

    async def test_an_impossible_socket_is_an_error_that_says_so(self, home, monkeypatch):
        (home / "file").touch()
        monkeypatch.setenv("PILOTFISH_SOCKET", str(home / "file" / "p.sock"))
        with pytest.raises(ConfigError, match="PILOTFISH_SOCKET"):
            async with governing():
                pass


async def test_half_heads_are_in_nobodys_way(socket):
    async with governing(limits=Limits(connections=16)), running(socket) as runner:
        await until(lambda: runner.plans)
        async with crowding(socket, 100):
            assert await ask_status(socket)
            runner.did(requests=1)
            await until(lambda: runner.link.connected)
        assert len(runner.plans) == 1, "it was cut off"
