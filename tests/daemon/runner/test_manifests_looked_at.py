"""A runner goes through the manifests of its store once, however many there are."""

from __future__ import annotations

import sys

import pytest

from pilotfish.manifests.store import Store
from tests.plugins.drafters.tiny_llama import write_tiny_llama
from tests.server_processes import running

# A runner that writes a line whenever it lists the folder that its environment names.
COUNTING = """
import os, sys
manifests, notes = os.environ["MANIFESTS"], os.open(os.environ["NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def note(event, given):
    if event in ("os.scandir", "os.listdir") and str(given[0]) == manifests:
        os.write(notes, b"listed ")

sys.addaudithook(note)
from pilotfish.daemon.runner.main import main
sys.exit(main())
"""


@pytest.mark.model
def test_at_a_load_and_an_answer(smollm2_path, tmp_path):
    store, notes = Store(tmp_path / "models"), tmp_path / "notes"
    for name, seed in (("tiny:1m", 7), ("other:1m", 8)):
        store.add_gguf(name, write_tiny_llama(tmp_path / f"{seed}.gguf", smollm2_path, seed=seed))
    blob = store.blob(store.manifest("tiny:1m").weights[0])
    env = {"PILOTFISH_STATE": str(tmp_path / "state"), "PILOTFISH_CONFIG": "", "PILOTFISH_SOCKET": str(tmp_path / "s")}
    counting = {**env, "MANIFESTS": str(store.manifests), "NOTES": str(notes)}
    with running((sys.executable, "-c", COUNTING), blob, tmp_path / "log", "-c", "256", env=counting) as server:
        assert server.post("/completion", prompt="a", n_predict=1).status_code == 200
    assert "tiny:1m" in (tmp_path / "log").read_text()
    assert notes.read_text() == "listed "
