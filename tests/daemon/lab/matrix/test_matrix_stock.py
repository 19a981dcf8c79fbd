"""What a stock server does with a model, in a few words, whatever the server does."""

from __future__ import annotations

from pilotfish.daemon.lab.matrix.matrix_stock import ask_stock
from tests.daemon.lab.fake_llama_server import as_program


def test_it_is_asked_what_it_keeps_and_about_the_contexts_end(tmp_path):
    assert ask_stock(as_program(tmp_path), tmp_path / "model.gguf") == "loads, keeps 0 of 200; a full context shifts"


def test_a_server_that_does_not_load_the_model_is_told_with_its_words(tmp_path):
    server = tmp_path / "llama-server"
    server.write_text("#!/bin/sh\necho 'unknown model architecture'\nexit 1\n")
    server.chmod(0o755)
    said = ask_stock(server, tmp_path / "model.gguf")
    assert said.startswith("fails: ")
    assert "unknown model architecture" in said
