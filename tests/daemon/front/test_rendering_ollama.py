"""The process that renders prompts, played by a script."""

from __future__ import annotations

import sys

import pytest

from pilotfish.daemon.front import rendering_ollama
from pilotfish.daemon.front.catalog import Catalog
from pilotfish.daemon.front.prompts import ChatWish
from pilotfish.daemon.front.rendering_ollama import RenderingOllama
from pilotfish.daemon.front.requests import Message
from pilotfish.daemon.front.twins import Twins
from pilotfish.daemon.front.upstream_client import UpstreamAway, UpstreamClient
from pilotfish.daemon.http.tunnel import ServerAddress
from pilotfish.daemon.processes.ports import free_port

HANGS_ONCE = """#!{python}
import http.server, json, os, pathlib, time

class Ollama(http.server.BaseHTTPRequestHandler):
    def say(self, found):
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.say({{"version": "0"}})

    def do_POST(self):
        hung = pathlib.Path({hung!r})
        if not hung.exists():
            hung.touch()
            time.sleep(600)
        self.say({{"_debug_info": {{"rendered_template": str(os.getpid())}}}})

host, port = os.environ["OLLAMA_HOST"].split(":")
http.server.ThreadingHTTPServer((host, int(port)), Ollama).serve_forever()
"""


async def test_one_that_hangs_costs_one_prompt_and_is_replaced(store, tmp_path, monkeypatch):
    binary = tmp_path / "ollama"
    binary.write_text(HANGS_ONCE.format(python=sys.executable, hung=str(tmp_path / "hung")))
    binary.chmod(0o755)
    nobody = UpstreamClient(ServerAddress("127.0.0.1", free_port()), "1.1 test")
    ollama = RenderingOllama(str(binary), Twins(tmp_path / "twins", store), nobody)
    chat = (await Catalog(store).find("tiny"), [Message("user", "hi")], ChatWish())
    try:
        with monkeypatch.context() as patch:
            patch.setattr(rendering_ollama, "_RENDERS_WITHIN", 2.0)
            with pytest.raises(UpstreamAway, match="rendered no prompt"):
                await ollama(*chat)
        assert await ollama(*chat) == await ollama(*chat)  # by one process, which stays
    finally:
        await ollama.aclose()
        await nobody.aclose()
