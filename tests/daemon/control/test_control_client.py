"""Runners under a daemon: plans arrive, reports are kept, and neither side's death troubles the other."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager

import pytest

from pilotfish.daemon.config.editing import set_enabled
from pilotfish.daemon.control.control_client import ask_status, connected
from pilotfish.daemon.control.governing import governing
from pilotfish.daemon.core.totals import Standing
from tests.daemon.control.governed import running, save, settled, status_once
from tests.waiting import until


@asynccontextmanager
async def daemon_process(socket):
    """`pilotfish daemon` as a process of its own, answering."""
    words = ("-c", "from pilotfish.daemon.cli import main; main(['daemon'])")
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stderr=asyncio.subprocess.DEVNULL)
    try:
        await status_once(socket, lambda status: status["daemon"]["pid"] == process.pid)
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 60) == 0


class TestPlans:
    async def test_the_first_plan_comes_at_once(self, config, socket):
        save(config, '[models."smollm2:135m"]\nmax_width = 4\n')
        async with governing(), running(socket) as runner:
            await until(lambda: runner.plans)
            plan = runner.plans[0].config
            assert (plan.speculation.max_width, plan.models, plan.path) == (4, {}, config)

    async def test_off_and_on_reach_a_connected_runner(self, socket):
        async with governing(), running(socket) as runner:
            await until(lambda: runner.enabled is True)
            set_enabled(False)
            await until(lambda: runner.enabled is False)
            set_enabled(True)
            await until(lambda: runner.enabled is True)
            assert len(runner.plans) == 3

    async def test_off_for_one_model_is_no_news_to_another(self, socket):
        set_enabled(True)
        async with governing(), running(socket) as this, running(socket, "qwen3:8b", pid=8) as other:
            await until(lambda: this.plans and other.plans)
            set_enabled(False, "smollm2:135M")
            await until(lambda: this.enabled is False)
            await settled()
            assert (other.enabled, len(other.plans)) == (True, 1)

    async def test_off_for_a_model_with_the_same_weights_counts(self, socket):
        async with governing(), running(socket, "a:latest", aliases=("b:latest",)) as runner:
            await until(lambda: runner.plans)
            set_enabled(False, "b")
            await until(lambda: runner.enabled is False)

    async def test_a_bad_edit_sends_no_plan(self, config, socket):
        save(config, "")
        async with governing() as daemon, running(socket) as runner:
            await until(lambda: runner.plans)
            save(config, "[speculation]\nenabled = no\n")
            await until(lambda: "not valid TOML" in daemon.governor.config_error)
            assert len(runner.plans) == 1

    @pytest.mark.parametrize(
        "error", [RuntimeError("no room"), SystemExit(3), asyncio.CancelledError(), BaseException()]
    )
    async def test_a_runner_that_cannot_follow_one_plan_gets_the_next_and_reports_again(self, socket, error):
        async with governing() as daemon, running(socket) as runner:
            runner.fail = error
            await until(lambda: runner.plans)
            set_enabled(False)
            await until(lambda: runner.enabled is False)
            runner.fail = None
            runner.did(requests=3)
            await until(lambda: daemon.governor.totals().get("smollm2:135m"))


class TestReports:
    async def test_they_show_in_the_status(self, socket):
        async with governing(), running(socket) as runner:
            runner.did(requests=2, committed=80, drafted=50, accepted=40, rounds=20)
            await until(lambda: runner.link.connected)
            runner.now = type(runner.now)(
                runner.now.totals, Standing("parked", "did not pay"), ("suffix",), ("mine: no",)
            )

            [entry] = (await status_once(socket, lambda status: status["runners"][0]["state"] == "parked"))["runners"]
            assert (entry["model"], entry["port"], entry["lane"], entry["parity"]) == (
                "smollm2:135m",
                4711,
                "bf16-f16",
                "lane",
            )
            assert (entry["reason"], entry["drafters"], entry["problems"]) == ("did not pay", ["suffix"], ["mine: no"])
            assert entry["totals"]["acceptance"] == 0.8

    async def test_what_a_model_did_outlives_its_runners(self, socket):
        async with governing() as daemon:
            for pid in (7, 8):
                async with running(socket, pid=pid) as runner:
                    runner.did(requests=3)
                    await until(lambda: daemon.governor.totals().get("smollm2:135m"))
                    await until(lambda pid=pid: daemon.governor.totals()["smollm2:135m"].requests == 3 * (pid - 6))
                await until(lambda: not daemon.governor.status()["runners"])
            assert daemon.governor.totals()["smollm2:135m"].requests == 6

    async def test_a_runner_that_comes_back_is_not_counted_twice(self, socket):
        async with governing() as daemon:
            for _ in range(2):
                async with running(socket) as runner:
                    runner.did(requests=3)
                    await until(lambda: daemon.governor.totals().get("smollm2:135m"))
                await until(lambda: not daemon.governor.status()["runners"])
            assert daemon.governor.totals()["smollm2:135m"].requests == 3


class TestDeath:
    async def test_a_daemon_that_appears_later_is_found(self, socket):
        async with running(socket) as runner:
            await settled()
            assert not runner.plans
            async with governing():
                await until(lambda: runner.plans)

    async def test_a_killed_daemon_leaves_the_last_plan_and_its_successor_finds_the_runner_again(self, socket):
        set_enabled(False)
        async with running(socket) as runner:
            async with daemon_process(socket) as first:
                await until(lambda: runner.plans)
                os.kill(first.pid, signal.SIGKILL)
                await first.wait()
            await until(lambda: not runner.link.connected)
            assert runner.enabled is False
            set_enabled(True)
            async with daemon_process(socket):
                await until(lambda: runner.enabled is True)
                [entry] = (await ask_status(socket))["runners"]
                assert entry["pid"] == 7

    async def test_a_runner_that_ends_is_gone_from_the_status(self, socket):
        async with governing() as daemon:
            async with running(socket) as runner:
                await until(lambda: runner.plans)
                assert len(daemon.governor.status()["runners"]) == 1
            await until(lambda: not daemon.governor.status()["runners"])

    async def test_junk_on_the_socket_does_no_harm(self, socket):
        async def junk(reader, writer):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n{not json\n")
            await writer.drain()
            writer.close()

        socket.parent.mkdir(mode=0o700)
        async with running(socket) as runner:
            async with await asyncio.start_unix_server(junk, socket):
                await settled()
            socket.unlink(missing_ok=True)
            async with governing():
                await until(lambda: runner.plans)
        assert await ask_status(socket) is None


class TestRequests:
    @pytest.mark.parametrize(
        ("method", "route", "body", "status", "message"),
        [
            ("POST", "/v1/runners", b"{", 400, "not valid JSON"),
            ("POST", "/v1/runners", b'{"pid": "x"}', 400, "not a registration"),
            ("POST", "/v1/runners", b"[]", 400, "must be a JSON object"),
            ("POST", "/v1/runners", b"[" * 100_000, 400, "not valid JSON"),
            (
                "POST",
                "/v1/runners",
                b'{"pid": Infinity, "port": 1, "model": "m", "started": 1}',
                400,
                "Infinity is not a JSON number",
            ),
            ("POST", "/v1/runners/99/live", b'{"events": [{"rate": NaN}]}', 400, "NaN is not a JSON number"),
            ("POST", "/v1/runners", b'{"pid": 1e400}', 400, "not a registration"),
            ("POST", "/v1/runners/99/report", b"{}", 400, "not a report"),
            ("GET", "/v1/else", b"", 404, "Not Found"),
        ],
    )
    async def test_a_bad_one_is_told_why(self, socket, method, route, body, status, message):
        async with governing(), connected(socket) as session, session.request(method, route, data=body) as response:
            assert response.status == status
            assert message in (await response.json())["error"]

    async def test_a_date_in_a_drafters_table_arrives_as_text(self, config, socket):
        save(config, "[models.a]\nenabled = false\n[drafters.mine]\nsince = 2024-01-01\n")
        async with governing(), running(socket, "A") as runner:
            await until(lambda: runner.plans)
        assert runner.enabled is False
        assert runner.plans[0].config.drafters.tables["mine"] == {"since": "2024-01-01"}
