"""A client of a draft host, and what it asks for."""

from __future__ import annotations

import http.client
import json
from typing import Any

from pilotfish.daemon.drafthost.listening import Endpoint
from pilotfish.lab.fakes import ScriptedDrafter

ANYWHERE = Endpoint(port=0)
TARGET = {
    "name": "fake:latest",
    "weights": [{"digest": "sha256:" + "0" * 64, "size": 5}],
    "tokenizer": {"fingerprint": "fake", "model": "fake", "n_vocab": 32, "eos": 1},
}
WANTED = {"protocol": 1, "target": TARGET, "n_ctx": 512}
OPENING = {**WANTED, "speaks": "ids", "prompt": [5, 6, 7]}


class Client:
    """One connection to a draft host."""

    def __init__(self, url: str, **headers: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self.http = http.client.HTTPConnection(host, int(port), timeout=60)
        self.headers = headers

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        data = body if isinstance(body, bytes) else json.dumps(body)
        self.http.request(method, f"/v1/draft{path}", data, self.headers)
        response = self.http.getresponse()
        return response.status, json.loads(response.read())

    def open(self, **changes: object) -> tuple[int, dict[str, Any]]:
        return self.ask("POST", "/open", {**OPENING, **changes})

    def turn(self, session: str, *steps: object) -> tuple[int, dict[str, Any]]:
        return self.ask("POST", f"/sessions/{session}", {"steps": list(steps)})


def repeating() -> ScriptedDrafter:
    return ScriptedDrafter(lambda history, k: [history[-1]] * k, confidence=0.5)
