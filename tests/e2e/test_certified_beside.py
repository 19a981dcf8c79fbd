"""A model that its load left to stock is certified while the real stock server idles, and its next load speculates.

That takes minutes, most of them at the lowest priority, so it is asked for by the seconds that it may take:
`PILOTFISH_TEST_CERTIFY=240 .venv/bin/python -m pytest tests/e2e/test_certified_beside.py`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil
import pytest

from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store
from tests.e2e.ollama_server import GREEDY, serving
from tests.manifests.builders import smollm2_path as packaged_smollm2
from tests.plugins.drafters.tiny_llama import write_tiny_llama
from tests.waiting import wait_until

SECONDS = os.environ.get("PILOTFISH_TEST_CERTIFY", "")

pytestmark = [
    pytest.mark.ollama,
    pytest.mark.model,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not SECONDS, reason="takes minutes; set PILOTFISH_TEST_CERTIFY to a budget in seconds, say 240"),
]

TINY = "tiny"
NO_TIME = {"PILOTFISH_CHECK_SECONDS": "0", "PILOTFISH_CERTIFY": "on"}  # a load finds no lane
CONFIG = f'[engine]\nchoice = "llama"\ncertify_idle_s = 1\ncertify_budget_s = {SECONDS}\n'


@pytest.fixture
def tiny(models: Path, tmp_path: Path) -> str:
    weights = write_tiny_llama(tmp_path / "tiny.gguf", packaged_smollm2(), seed=11)
    Store(models).add_gguf(ModelName.parse(TINY), weights, params={"num_ctx": 512, "num_thread": 1})
    return TINY


def test_what_a_load_left_to_stock_is_certified_beside_it_and_speculates_afterwards(overlay, folder, models, tiny):
    place = folder / "certified-beside"
    place.mkdir()
    (place / "pilotfish.toml").write_text(CONFIG)
    with serving(overlay, place, models, NO_TIME) as server:

        def loaded() -> tuple[str, str]:
            """A load's answer, and which program gave it."""
            answer = server.client.generate(tiny, "Once upon a time", raw=True, options=GREEDY).response
            (process,) = (one for one in psutil.Process(server.process.pid).children() if "--port" in one.cmdline())
            return answer, Path(process.exe()).name

        left, program = loaded()
        assert program == "llama-server"
        assert [decision["decision"] for decision in server.decisions()] == ["runner", "stock"]
        server.unload()
        assert loaded() == (left, "llama-server"), "stock's at once, and certified as soon as it idles"
        folder_of = server.state / "certificates"
        (path,) = wait_until(lambda: [*folder_of.glob("*.json")], "no certificate was made", seconds=480)
        lane = json.loads(path.read_text())["lane"]
        server.unload()

        _, program = loaded()
        speculates = max(lane["widths"]) > 1  # what was timed may speak against it where other work was timed, too
        assert (program != "llama-server") is speculates, lane["reason"]
        assert server.decisions()[-1]["decision"] == ("runner" if speculates else "stock")
        if speculates:
            about = server.runner().get("/pilotfish/explain").json()
            assert about["lane"]["name"] == lane["name"]
