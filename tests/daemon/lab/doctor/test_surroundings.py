"""What the doctor looks up of libraries that another program brings."""

from __future__ import annotations

import os

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.lab.doctor import surroundings


def test_the_libllama_of_the_overlaid_ollama_has_a_fingerprint_and_the_environment_is_left_as_it_was(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", "/mine")

    def of(folder):
        overlay = {"record": {"original": {"binary": "/ollama", "library": str(folder)}}}
        return surroundings._ollamas_llama(Config(), overlay)

    for name in ("empty", "one", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "libllama.so").write_bytes(b"one")
    (tmp_path / "other" / "libllama.so").write_bytes(b"another")
    assert of(tmp_path / "empty") == ""
    assert len({"", of(tmp_path / "one"), of(tmp_path / "other")}) == 3
    assert surroundings._ollamas_llama(Config(), {"record": None}) == ""
    assert os.environ["LLAMA_CPP_LIB_PATH"] == "/mine"
