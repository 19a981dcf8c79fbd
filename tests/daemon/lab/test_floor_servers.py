"""What the comparison with stock Ollama is made of: the two programs, their answers, what is known of the engine."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pilotfish.daemon.lab.floor_servers import installed, read_reply, remembered_state
from pilotfish.hooks.errors import EngineError, UsageError
from tests.ollama_overlay import fake_ollama


async def said(*events):
    for event in events:
        yield event


async def test_a_reply_is_counted_as_ollama_counts_and_loading_is_no_part_of_it():
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 7, "eval_count": 2, "load_duration": 0}
    reply = await read_reply(said({"response": "a"}, {"response": "b"}, {"response": "", **end}))
    assert (reply.text, reply.counts, reply.load) == ("ab", (7, 2, "stop"), 0.0)
    assert 0 <= reply.first <= reply.seconds

    loaded = await read_reply(said({"response": "a"}, {**end, "load_duration": 5_000_000_000}))
    assert loaded.load == 5.0
    assert loaded.seconds < 0, "as if it had been loaded before"


async def test_a_chats_reply_is_in_its_messages():
    events = said({"message": {"content": "ok"}}, {"message": {"content": ""}, "done": True})
    assert (await read_reply(events)).text == "ok"


async def test_an_answer_without_an_end_is_an_error():
    with pytest.raises(EngineError, match="broke off"):
        await read_reply(said({"response": "a"}))


def test_the_two_programs_are_the_overlay_and_what_it_was_made_from(tmp_path, monkeypatch):
    monkeypatch.setenv("PILOTFISH_STATE", str(tmp_path / "state"))
    original, prefix = fake_ollama.install(tmp_path / "usr"), tmp_path / "overlay"
    words = ["overlay", "install", "--ollama", str(original), "--prefix", str(prefix)]
    subprocess.run([sys.executable, "-m", "pilotfish.daemon.cli", *words], check=True, capture_output=True)
    found = installed(prefix)
    assert (found.stock, found.overlaid, found.build) == (original, prefix / "bin" / "ollama", "0.33.2")

    original.write_bytes(fake_ollama.go_binary(version="v0.34.0"))
    with pytest.raises(UsageError, match="pilotfish overlay install"):
        installed(prefix)


def test_without_an_overlay_there_is_nothing_to_compare(tmp_path):
    with pytest.raises(UsageError, match="make one with: pilotfish overlay install"):
        installed(tmp_path / "nowhere")


def test_what_is_known_of_engines_and_models_is_copied_and_nothing_else(tmp_path):
    source = tmp_path / "users"
    (source / "certificates").mkdir(parents=True)
    (source / "certificates" / "a.json").write_text("{}")
    for name in ("fingerprints.json", "decisions.jsonl"):
        (source / name).write_text("{}")
    copy = remembered_state(source, tmp_path / "own")
    assert {path.name for path in copy.rglob("*")} == {"certificates", "a.json", "fingerprints.json"}
    assert list(remembered_state(tmp_path / "nothing", tmp_path / "empty").iterdir()) == []
