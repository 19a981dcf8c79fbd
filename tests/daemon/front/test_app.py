"""Serving until told to stop."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from functools import partial
from pathlib import Path

import aiohttp

from pilotfish.daemon.front import FrontSettings, app, serve
from pilotfish.daemon.http.serving import serving as serving_http
from tests.waiting import until

FAKE = Path(__file__).with_name("fake_runner.py")


async def test_a_signal_stops_the_server_its_streams_and_its_runners(store, monkeypatch, caplog):
    # The stream never ends by itself, so that what it is given to end in is waited out.
    monkeypatch.setattr(app, "serving", partial(serving_http, shutdown_timeout=0.1))
    caplog.set_level("INFO", "pilotfish.front")
    settings = FrontSettings(port=0, runner=(sys.executable, str(FAKE)))
    serving = asyncio.create_task(serve(store, settings))
    url = await until(lambda: re.search(r"listening on (\S+),", caplog.text), "nothing listens")
    async with aiohttp.ClientSession() as http:
        body = {"model": "tiny", "prompt": "endless"}
        async with http.post(f"{url[1]}/api/generate", json=body) as stream:
            await stream.content.readline()
            os.kill(os.getpid(), signal.SIGTERM)
            await serving
    assert "unloaded tiny:latest" in caplog.text
