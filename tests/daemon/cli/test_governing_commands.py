"""`pilotfish status`, `on`, `off` and `daemon` as a person uses them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import aiohttp
import pytest
from click.testing import CliRunner

from pilotfish.daemon.cli import cli
from pilotfish.daemon.cli.serve import _serve
from pilotfish.daemon.cli.status import far_end_line
from pilotfish.daemon.control.control_client import ask_status
from pilotfish.daemon.control.governing import governing
from pilotfish.daemon.front.settings import FrontSettings
from pilotfish.daemon.processes.ports import free_port
from pilotfish.hooks.errors import UsageError
from pilotfish.hooks.types import ConversationTotals
from pilotfish.manifests.store import Store
from tests.daemon.control.governed import running, save, status_once
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("home")


def run(*words: str) -> str:
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def status() -> dict:
    return json.loads(CliRunner().invoke(cli, ["status", "--json"], catch_exceptions=False).stdout)


@contextmanager
def in_background(socket, **runner) -> Iterator[None]:
    """A daemon, and a fake runner that has its plan and has reported, on a thread of their own."""
    ready, done = threading.Event(), threading.Event()

    async def work() -> None:
        async with governing() as daemon, running(socket) as fake:
            fake.did(**runner)
            await until(lambda: daemon.governor.totals())
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        assert ready.wait(20)
        yield
    finally:
        done.set()
        thread.join()


class TestWithoutADaemon:
    def test_status_says_so_and_shows_what_is_known(self, home, config, tiny):
        Store(home / "models").add_gguf("tiny:1m", tiny)
        save(config, '[models."tiny:1m"]\nenabled = false\n')
        text = run("status")
        assert "daemon does not run" in text
        assert str(config) in text
        assert "tiny:1m off suffix" in text

    def test_the_json_has_every_key(self, socket):
        found = status()
        assert found["daemon"] == {"running": False, "socket": str(socket)}
        of_here = ["daemon", "config", "engines", "far_ends", "plugins"]
        assert list(found) == [*of_here, "runners", "models", "stock", "decisions"]

    def test_far_ends_are_looked_at_those_of_single_models_too(self, config):
        port = free_port()
        save(
            config,
            f'[engine]\nrpc = ["127.0.0.1:{port}"]\n[models.large]\nrpc = ["127.0.0.1:{port}", "127.0.0.2:{port}"]\n',
        )
        seen = status()["far_ends"]
        assert [far_end["endpoint"] for far_end in seen] == [f"127.0.0.1:{port}", f"127.0.0.2:{port}"]
        assert f"far end 127.0.0.1:{port} refuses connections" in run("status")

    def test_a_far_end_is_shown_with_its_memory_and_whom_it_serves(self):
        device = {"free": 3 << 30, "total": 4 << 30, "name": "CPU", "description": ""}
        seen = {"endpoint": "a:1", "pin": "libraries 12", "devices": [device], "busy": "", "trouble": ""}
        assert far_end_line(seen) == "a:1: 3072 MiB of 4096 MiB free (libraries 12)"
        busy = {**seen, "busy": "10.0.0.5:4711", "trouble": "a:1 serves 10.0.0.5:4711, and one at a time"}
        assert far_end_line(busy).endswith("(libraries 12), serves 10.0.0.5:4711")
        assert far_end_line({**seen, "trouble": "a:1 refuses connections"}) == "a:1 refuses connections"

    def test_the_engines_that_may_compute_are_named(self, config):
        assert status()["engines"] == {"choice": "auto", "here": ["llama", "ik"], "problems": []}
        save(config, '[engine]\nchoice = "ik"\n')
        assert "engine ik (choice ik)" in run("status")

    def test_an_engine_that_cannot_be_used_is_a_line_and_the_other_computes(self, home, monkeypatch):
        monkeypatch.setenv("IK_LLAMA_CPP_LIB_PATH", str(home / "libllama.so"))
        text = run("status")
        assert "engine llama (choice auto)" in text
        assert "problem: engine ik: IK_LLAMA_CPP_LIB_PATH names" in text

    def test_without_any_engine_the_remedies_are_a_line(self, config, home, monkeypatch):
        monkeypatch.setenv("IK_LLAMA_CPP_LIB_PATH", str(home / "libllama.so"))
        save(config, '[engine]\nchoice = "ik"\n')
        text = run("status")
        assert "engine none (choice ik)" in text
        assert "problem: no engine can compute here" in text

    def test_a_broken_config_is_shown_with_the_reason(self, config):
        save(config, "[speculation]\nenabled = 1\n")
        assert "expected true or false" in status()["config"]["error"]
        assert "not in force" in run("status")

    def test_a_plugin_folder_that_cannot_be_read_is_a_line(self, home, config):
        save(config, f"[plugins]\nfolders = [{str(home / 'gone')!r}]\n")
        assert f"problem: plugin {home / 'gone'}: left out" in run("status")

    def test_the_shims_decisions_are_shown(self, home):
        (home / "state").mkdir()
        lines = [
            {"time": 1.0, "model": "tiny:1m", "decision": "runner", "reason": ""},
            {"time": 2.0, "model": "a:latest, b:latest", "decision": "stock", "reason": "a projector [mmproj]"},
        ]
        text = "\n".join(map(json.dumps, lines)) + '\nnot json\n[]\n{"time": "x"}\n{"half'
        (home / "state" / "decisions.jsonl").write_text(text)
        assert status()["decisions"] == lines
        assert "a projector [mmproj]" in run("status")

    def test_a_model_on_stock_is_a_line_with_the_reason_and_since_when(self, home):
        (home / "state").mkdir()
        lines = [
            {"time": 1.0, "model": "slid:1m", "decision": "runner", "reason": ""},
            {"time": 2.0, "model": "slid:1m", "decision": "stock", "reason": "its window"},
            {"time": 3.0, "model": "slid:1m", "decision": "stock", "reason": "its window"},
            {"time": 4.0, "model": "back:1m", "decision": "stock", "reason": "switched off"},
            {"time": 5.0, "model": "back:1m", "decision": "runner", "reason": ""},
            {"time": 6.0, "model": "other:1m", "decision": "stock", "reason": "a projector"},
            {"time": 7.0, "model": "other:1m", "decision": "stock", "reason": "--lora"},
        ]
        (home / "state" / "decisions.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
        assert status()["stock"] == [
            {"model": "other:1m", "reason": "--lora", "since": 7.0},
            {"model": "slid:1m", "reason": "its window", "since": 2.0},
        ]
        text = run("status")
        assert "slid:1m, since 1970-01-01" in text
        assert "back:1m, since" not in text

    def test_off_and_on_say_what_they_changed_and_where(self, config):
        said = run("off")
        assert "off: speculation.enabled = false" in said
        assert "No daemon runs" in said
        assert str(config) in said.replace(" ", "")
        assert status()["config"]["in_force"]["speculation"]["enabled"] is False
        assert "already off" in run("off")
        assert 'models."tiny:1m".enabled = true' in run("on", "tiny:1m")
        assert "not for tiny:1m" in run("off")


class TestWithADaemon:
    def test_status_shows_it_and_its_runners(self, socket):
        with in_background(socket, requests=4, drafted=10, accepted=5):
            found = status()
            assert found["daemon"]["running"]
            [runner] = found["runners"]
            assert runner["state"] == "active"
            assert found["models"][0]["totals"]["requests"] == 4
            text = run("status")
            assert "daemon runs, pid" in text
            assert "50%" in text

    def test_a_drafter_that_is_not_ready_is_shown_with_the_reason(self, socket):
        pool = {
            "suffix": {"state": "ready", "about": ""},
            "remote": {"state": "ready", "about": "http://box:4711, 3 ms away"},
            "llama": {"state": "refused", "about": "200 MiB are missing"},
        }
        with in_background(socket, requests=1, pool=pool):
            assert status()["runners"][0]["pool"] == pool
            text = run("status")
        assert "drafter llama: refused: 200 MiB are missing (smollm2:135m)" in text
        assert "drafter remote: ready: http://box:4711, 3 ms away" in text
        assert "drafter suffix:" not in text

    def test_the_conversations_beside_the_slot_are_shown(self, socket):
        kept = ConversationTotals(entries=3, bytes=70 << 20, room=8192 << 20, hits=5, forgotten=1, refused=2)
        with in_background(socket, remembered=kept, requests=1):
            assert status()["runners"][0]["conversations"]["hits"] == 5
            text = run("status")
        line = "conversations: 3 beside the last one (70 of 8192 MiB); 5 taken up again, 1 forgotten, 2 too large"
        assert line in text
        disk = replace(kept, disk_entries=4, disk_bytes=90 << 20, disk_room=500 << 20, disk_hits=1)
        with in_background(socket, remembered=disk, requests=1):
            assert "(70 of 8192 MiB), 4 on disk (90 of 500 MiB), 1 taken up from there; 5 taken up" in run("status")
        with in_background(socket, remembered=ConversationTotals(obstacle="its window forgets"), requests=1):
            assert "conversations: only the last one is kept: its window forgets" in run("status")

    def test_where_long_prompts_are_read_is_shown(self, socket):
        with in_background(socket, prompts="in the lane: 90 MiB are missing", requests=1):
            assert "long prompts: read in the lane: 90 MiB are missing (smollm2:135m)" in run("status")

    def test_what_is_in_force_is_what_the_daemon_says(self, config, socket):
        save(config, "[speculation]\nmax_width = 3\n")
        with in_background(socket):
            save(config, "[")
            found = status()
            assert found["config"]["in_force"]["speculation"]["max_width"] == 3

    def test_a_plugin_folder_that_cannot_be_read_is_a_line_and_stops_nothing(self, home, config, socket):
        (home / "file").touch()
        save(config, f"[plugins]\nfolders = [{str(home / 'file' / 'below')!r}]\n")
        with in_background(socket):
            assert status()["daemon"]["running"]
            assert "Not a directory" in run("status")

    def test_off_says_when_it_takes_effect(self, socket):
        with in_background(socket):
            assert "to the next request" in run("off")

    def test_a_second_daemon_names_the_first(self, socket):
        with in_background(socket), pytest.raises(UsageError, match=r"already runs at .* \(pid \d+\); stop it first"):
            CliRunner().invoke(cli, ["daemon"], catch_exceptions=False)


class TestServe:
    @contextmanager
    def serving(self, home) -> Iterator[asyncio.Task[None]]:
        task = asyncio.create_task(_serve(Store(home / "models"), FrontSettings(port=0)))
        yield task
        assert not task.done()
        task.cancel()

    async def test_it_contains_the_daemon(self, home, socket):
        with self.serving(home) as task:
            await status_once(socket, lambda status: status["daemon"]["pid"] == os.getpid())
        await asyncio.gather(task, return_exceptions=True)
        assert await ask_status(socket) is None

    async def test_it_leaves_a_daemon_that_runs_in_charge(self, home, socket, caplog):
        caplog.set_level(logging.INFO, "pilotfish")
        async with governing() as daemon:
            with self.serving(home) as task:
                await until(lambda: "listening on" in caplog.text)
            await asyncio.gather(task, return_exceptions=True)
            assert daemon is not None
            assert await ask_status(socket)
        assert "another daemon governs already" in caplog.text

    @pytest.mark.parametrize("other", [False, True], ids=["its own daemon", "another daemon"])
    async def test_metrics_of_the_daemon_are_on_its_port(self, home, caplog, other):
        caplog.set_level(logging.INFO, "pilotfish")
        async with governing() if other else nullcontext():
            with self.serving(home) as task:
                await until(lambda: "listening on" in caplog.text)
                (url,) = re.findall(r"listening on (\S+),", caplog.text)
                async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as response:
                    assert (response.status, response.headers["Content-Type"]) == (200, "text/plain; version=0.0.4")
                    assert "pilotfish_config_ok 1.0" in (await response.text()).splitlines()
            await asyncio.gather(task, return_exceptions=True)

    async def test_without_a_socket_it_serves_all_the_same(self, home, monkeypatch, caplog):
        caplog.set_level(logging.INFO, "pilotfish")
        monkeypatch.setenv("PILOTFISH_SOCKET", "/" + "x" * 200)
        with self.serving(home) as task:
            await until(lambda: "listening on" in caplog.text)
        await asyncio.gather(task, return_exceptions=True)
