"""An idle runner certifies its model, and the next runner takes the certificate up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.plugins.drafters.tiny_llama import write_tiny_llama
from tests.server_processes import RUNNER, ServerProcess, running
from tests.waiting import wait_until

pytestmark = pytest.mark.model

ASKED = {"prompt": "One day a fox and a crow", "n_predict": 24, "temperature": 0, "return_tokens": True}


def certificate(folder: Path) -> dict:
    """The certificate in the state folder, once there is one."""
    [path] = wait_until(lambda: list(folder.glob("certificates/*.json")), "no certificate was made", seconds=240)
    return json.loads(path.read_text())


def answer(server: ServerProcess) -> dict:
    response = server.post("/completion", **ASKED)
    assert response.status_code == 200
    return response.json()


def test_idle_then_certificate_then_reload(smollm2_path, tmp_path, monkeypatch):
    model = tmp_path / "tiny.gguf"
    write_tiny_llama(model, smollm2_path)
    monkeypatch.delenv("PILOTFISH_CERTIFY", raising=False)
    config = tmp_path / "pilotfish.toml"
    config.write_text("[engine]\ncertify_idle_s = 1\ncertify_budget_s = 40\n")
    env = {"PILOTFISH_STATE": str(tmp_path / "state"), "PILOTFISH_CONFIG": str(config)}
    flags = ("-c", "512", "-t", "1")

    with running(RUNNER, model, tmp_path / "first.log", *flags, env=env) as server:
        before = answer(server)
        found = certificate(tmp_path / "state")
        assert answer(server)["tokens"] == before["tokens"]
    assert "not certified" in (tmp_path / "first.log").read_text()
    assert [name for name, _ in found["identity"]["engines"]] == ["ik", "llama"]

    with running(RUNNER, model, tmp_path / "second.log", *flags, env=env) as server:
        after = answer(server)
    assert "not certified" not in (tmp_path / "second.log").read_text()
    assert after["pilotfish"]["lane"] == found["lane"]["name"]
    if found["lane"]["setting"]["engine"] == "llama":  # another engine's last bits are its own
        assert after["tokens"] == before["tokens"]
