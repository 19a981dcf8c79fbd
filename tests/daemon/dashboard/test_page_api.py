"""The page's API: what it says, to whom, and who may change things."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import re
import threading
import time
import webbrowser
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from pilotfish.daemon.cli.open import command as open_command
from pilotfish.daemon.control import decision_log
from pilotfish.daemon.control.control_client import ControlClient, connected
from pilotfish.daemon.control.plans import Registration, Report
from pilotfish.daemon.core.live import Sight
from pilotfish.daemon.core.totals import Standing, Totals
from pilotfish.daemon.dashboard import api, dashboard, page_token
from pilotfish.daemon.dashboard.history import AccountHistory, News
from pilotfish.daemon.dashboard.page_files import STATIC
from pilotfish.daemon.dashboard.viewers import BACKLOG, MOST, PageMessage, Viewers
from pilotfish.hooks.errors import RequestError
from tests.daemon.control.governed import running
from tests.daemon.dashboard.conftest import Shown, page
from tests.waiting import until

ROUND = {"kind": "round", "request": 1, "at": 0.0, "committed": 2, "pieces": [{"text": "said", "drafted": True}]}


class TestWhoMay:
    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "http://evil.example"},
            {"Origin": "http://127.0.0.1:1"},
            {"Origin": "null"},
            {"Host": "evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
        ],
    )
    @pytest.mark.parametrize("path", ["api/state", "api/live", "", "static/main.js"])
    async def test_other_pages_and_other_names_get_nothing(self, shown, path, headers):
        async with shown.http.get(shown.url + path, headers={**shown.token, **headers}) as response:
            assert response.status == 403
            assert await response.read() == b""

    async def test_a_change_needs_the_token(self, shown):
        body = {"enabled": False, "model": None}
        for headers in (
            {},
            {"X-Pilotfish-Token": "wrong"},
            {"Cookie": "pilotfish_page=wrong"},
            {"X-Pilotfish-Token": "\xff"},
        ):
            async with shown.http.post(f"{shown.url}api/switch", json=body, headers=headers) as response:
                assert response.status == 403
                assert "pilotfish open" in (await response.json())["error"]
        async with shown.http.post(f"{shown.url}api/switch", json=body, headers=shown.token) as response:
            assert (await response.json())["changed"] is True
        await until(lambda: not shown.governor.config.speculation.enabled)
        assert (await shown.get("api/state"))[1]["config"]["enabled"] is False

    async def test_a_code_is_good_once_and_gives_a_cookie_that_scripts_cannot_read(self, shown, socket):
        async with connected(socket) as session, session.post("/pilotfish/open") as response:
            url = (await response.json())["url"]
        async with shown.http.get(url, allow_redirects=False) as response:
            assert response.status == 303
            cookie = response.headers["Set-Cookie"]
            assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", "Path=/pilotfish"))
        assert (await shown.get("api/state"))[1]["may_change"] is True  # the session keeps the cookie
        async with aiohttp.ClientSession() as other, other.get(url) as response:
            assert response.status == 403

    async def test_a_code_for_one_user_is_of_no_use_to_another_who_read_it(self, shown, socket, monkeypatch):
        async with connected(socket) as session, session.post("/pilotfish/open", json={"user": 1000}) as response:
            url = (await response.json())["url"]
        for asker, status in ((1001, 403), (1000, 303), (1000, 403)):
            monkeypatch.setattr(api, "owner_of", lambda peer, own, asker=asker: asker)
            async with shown.http.get(url, allow_redirects=False) as response:
                assert response.status == status

    @pytest.mark.parametrize(("arguments", "status"), [((), 403), (("--print",), 303)])
    async def test_open_hands_a_browser_what_only_its_user_can_use(self, shown, monkeypatch, arguments, status):
        opened: list[str] = []
        monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
        done = await asyncio.to_thread(CliRunner().invoke, open_command, arguments)
        assert done.exit_code == 0, done.output
        monkeypatch.setattr(api, "owner_of", lambda peer, own: os.getuid() + 1)
        url = opened[0] if opened else done.stdout.split()[0]
        async with shown.http.get(url, allow_redirects=False) as response:
            assert response.status == status

    async def test_a_code_grows_old(self, tmp_path):
        now = 0.0
        token = page_token.PageToken(tmp_path, lambda: now)
        code = token.code()
        now = page_token.CODE_SECONDS
        assert not token.redeem(code)
        assert page_token.PageToken(tmp_path).value == token.value
        assert (tmp_path / "page-token").stat().st_mode & 0o077 == 0

    async def test_nothing_is_run_that_is_not_the_pages_own(self, shown):
        async with shown.http.get(shown.url) as response:
            policy = response.headers["Content-Security-Policy"]
            text = await response.text()
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"(src|href)=\"(https?:)?//", text)
        assert not re.search(r"<script>|<style|style=| on\w+=", text)

    async def test_a_config_that_wants_no_page_has_none(self, home, socket):
        from pilotfish.daemon.dashboard.showing import showing
        from pilotfish.manifests.store import Store

        (home / "config" / "pilotfish").mkdir(parents=True)
        (home / "config" / "pilotfish" / "pilotfish.toml").write_text("[page]\nenabled = false\n")
        async with showing(Store(home / "models")) as found:
            assert found is not None
            assert found.routes() == []
            async with connected(socket) as session, session.get("/pilotfish/") as response:
                assert response.status == 404


class TestWhatItSays:
    async def test_a_runner_and_why_it_does_not_speculate(self, shown, socket):
        async with running(socket, "qwen3:8b") as runner:
            runner.now = Report(standing=Standing("plain", "no forward wider than one token gives the same ids"))
            model = await until(lambda: _model(shown, "qwen3:8b", "plain"))
            assert model["why"] == "no forward wider than one token gives the same ids"
            assert model["runner"] == "1"
        await until(lambda: _model(shown, "qwen3:8b", "plain") is None)
        kinds = [(event["kind"], event["model"]) for event in (await shown.get("api/events"))[1]["events"]]
        assert [kind for kind, model in kinds if model] == ["loaded", "state", "unloaded"]

    async def test_what_is_no_number_is_null(self, shown, monkeypatch):
        async def certificates() -> list[dict]:
            return [{"divergence": math.nan, "seconds": math.inf, "n_ctx": 4096}]

        monkeypatch.setattr(shown.dashboard.shelf, "certificates", certificates)
        async with shown.http.get(f"{shown.url}api/certificates") as response:
            found = json.loads(await response.text(), parse_constant=pytest.fail)
        assert found == {"certificates": [{"divergence": None, "seconds": None, "n_ctx": 4096}]}

    async def test_what_went_to_stock_is_told_with_its_reason(self, shown, home):
        decision_log.record(home / "state", "llama3.2:1b", "stock", "too little memory for the full context")
        _, state = await shown.get("api/state")
        model = next(model for model in state["models"] if model["name"] == "llama3.2:1b")
        assert (model["state"], model["why"]) == ("stock", "too little memory for the full context")
        events = (await shown.get("api/events"))[1]["events"]
        assert ("stock", "llama3.2:1b") in [(event["kind"], event["model"]) for event in events]

    async def test_the_account_outlives_the_daemon(self, home, socket):
        async with page(home) as shown, running(socket) as runner:
            runner.now = replace(runner.now, clients={"curl": Totals(2, 20, saved_seconds=1.5)})
            await until(lambda: shown.dashboard.account.summary()["today"]["requests"] == 2)
        async with page(home) as shown, running(socket) as again:
            again.now = runner.now
            await until(lambda: shown.dashboard.account.summary()["today"]["requests"] == 2)
            _, history = await shown.get("api/history")
            assert history["days"][-1]["saved_seconds"] == 1.5
            texts = [event["text"] for event in (await shown.get("api/events"))[1]["events"]]
            assert texts.count("the daemon has started") == 2

    async def test_what_could_not_be_written_is_written_later(self, home, socket, monkeypatch):
        written = AccountHistory.save
        async with page(home) as shown, running(socket) as runner:
            runner.now = replace(runner.now, clients={"curl": Totals(2, 20)})
            await until(lambda: shown.dashboard.account.summary()["today"]["requests"] == 2)
            monkeypatch.setattr(AccountHistory, "save", lambda history, news: False)
            await shown.dashboard._save()
            monkeypatch.setattr(AccountHistory, "save", written)
        kept = AccountHistory(home / "state").load()
        assert [totals.requests for totals in kept.cells.values()] == [2]
        assert len(kept.processes) == 1
        assert "the daemon has started" in [each.text for each in kept.happenings]

    async def test_the_last_save_waits_for_one_that_still_writes(self, home, monkeypatch):
        written, began, writing, together = AccountHistory.save, threading.Event(), threading.Lock(), []

        def slowly(history: AccountHistory, news: News) -> bool:
            together.append(writing.locked())
            with writing:
                began.set()
                time.sleep(0.2)
                return written(history, news)

        monkeypatch.setattr(dashboard, "SAVE_EVERY", 0.01)
        monkeypatch.setattr(AccountHistory, "save", slowly)
        async with page(home) as shown:
            assert await asyncio.to_thread(began.wait, 30)
            shown.governor.happenings.add("daemon", "", "the last thing")
        assert not any(together)
        assert AccountHistory(home / "state").load().happenings[-1].text == "the last thing"

    async def test_switched_off_nothing_is_kept(self, home, socket):
        async with page(home, '[page]\nhost = "127.0.0.1:0"\nhistory = false\n') as shown:
            assert (await shown.get("api/state"))[1]["history"]["kept"] is False
        assert not (home / "state" / "history.sqlite").exists()


def _model(shown: Shown, name: str, state: str) -> dict | None:
    models = shown.dashboard.state.json()["models"]
    return next((model for model in models if model["name"] == name and model["state"] == state), None)


class Watched:
    """A runner that tells one thing whenever it is asked while somebody looks."""

    def __init__(self, socket, model: str = "a:latest") -> None:
        self.sights: list[Sight] = []
        self.asked = 0
        registration = Registration(7, 4711, model, 1.5, live=True)
        self.link = ControlClient(
            socket, registration, self._follow, Report, retry=0.02, report_every=0.02, on_watch=self.sights.append,
            live=self._live,
        )  # fmt: skip

    async def _follow(self, plan: object) -> None:
        pass

    def _live(self, most: int) -> list[dict]:
        self.asked += 1
        return [ROUND]

    async def __aenter__(self):
        self.link.start()
        return self

    async def __aexit__(self, *_):
        await self.link.close()


class TestPlayground:
    async def test_a_runner_that_answers_in_another_way_is_an_error_after_what_came(self, shown, socket):
        async def completion(request: web.Request) -> web.Response:
            first = {"tokens": [1], "content": "one", "stop": False}
            return web.Response(text="".join(f"data: {json.dumps(event)}\n\n" for event in (first, {"content": "two"})))

        async def template(request: web.Request) -> web.Response:
            return web.json_response({})

        app = web.Application()
        app.add_routes([web.post("/apply-template", template), web.post("/completion", completion)])
        body = {"runner": "1", "prompt": "x"}
        async with asyncio.timeout(30), TestServer(app) as runner:
            shown.governor.register(Registration(7, runner.port or 0, "a:latest", 1.5))
            async with shown.http.post(f"{shown.url}api/playground", json=body, headers=shown.token) as response:
                lines = [json.loads(line) async for line in response.content]
        assert lines[0] == {"side": "plain", "text": "one", "drafted": False}
        assert "does not answer" in lines[-1]["error"]


class TestLive:
    async def test_runners_tell_only_while_somebody_looks_and_text_to_whom_it_is_for(self, shown, socket):
        async with Watched(socket) as runner:
            await until(lambda: runner.link.connected)
            async with shown.http.get(f"{shown.url}api/live") as stream:
                assert "pieces" not in (await _live(stream))["events"][0]
                async with shown.http.get(f"{shown.url}api/live", headers=shown.token) as other:
                    await until(lambda: runner.sights[-1:] == [Sight.TEXT])
                    assert (await _live(other))["events"][0]["pieces"] == ROUND["pieces"]
                    assert "pieces" not in (await _live(stream))["events"][0]
                await until(lambda: runner.sights[-1] is Sight.ROUNDS)
            await until(lambda: runner.sights[-1] is Sight.NOTHING)
            assert runner.sights == [Sight.ROUNDS, Sight.TEXT, Sight.ROUNDS, Sight.NOTHING]
            asked = runner.asked
            await until(lambda: shown.governor.sight is Sight.NOTHING)
            async with shown.http.get(f"{shown.url}api/state") as response:
                assert response.status == 200
            assert runner.asked == asked

    async def test_a_switch_is_seen_by_whoever_looks(self, shown):
        async with shown.http.get(f"{shown.url}api/live") as stream:
            assert (await _next(stream, "state"))["config"]["enabled"] is True
            async with shown.http.post(
                f"{shown.url}api/switch", json={"enabled": False, "model": None}, headers=shown.token
            ):
                pass
            while (await _next(stream, "state"))["config"]["enabled"]:
                pass

    async def test_a_viewer_that_does_not_read_loses_the_oldest_and_knows(self):
        viewers = Viewers(lambda sight: None)
        viewer = viewers.enter(Sight.ROUNDS)
        for number in range(BACKLOG + 5):
            viewers.tell(PageMessage("happened", {"n": number}))
        taken = viewer.take()
        assert taken[0].data == {"n": 5}
        assert taken[-1] == PageMessage("lost", {"messages": 5})
        for _ in range(MOST - 1):
            viewers.enter(Sight.NOTHING)
        with pytest.raises(RequestError, match="open already"):
            viewers.enter(Sight.NOTHING)


async def _next(stream: aiohttp.ClientResponse, event: str) -> dict:
    """The data of the next event of that name."""
    name = ""
    async for line in stream.content:
        if line.startswith(b"event: "):
            name = line[7:].decode().strip()
        elif line.startswith(b"data: ") and name == event:
            return json.loads(line[6:])
    raise AssertionError(f"the stream ended before {event}")


async def _live(stream: aiohttp.ClientResponse) -> dict:
    return await _next(stream, "live")


def test_what_others_wrote_is_what_the_list_says():
    listed = re.findall(r"\| `([\w.]+)` \|.*`([0-9a-f]{64})`", (STATIC / "vendor" / "README.md").read_text())
    found = {path.name for path in (STATIC / "vendor").iterdir()} - {"README.md"}
    assert {name for name, _ in listed} == found
    for name, digest in listed:
        assert hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == digest
