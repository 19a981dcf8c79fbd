"""Runner or stock, by what earlier loads left behind: damage, pins, crashes, and what ended at stock."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

import pytest

from pilotfish.daemon.certify.left_to_stock import Left, LeftToStock
from pilotfish.daemon.config import files as configuration
from pilotfish.daemon.config.reader import parse
from pilotfish.daemon.runner.launch_arguments import in_force
from pilotfish.daemon.runner.launch_arguments import parse as parse_launch
from pilotfish.manifests.fingerprints import file_digest
from pilotfish.ollama_overlay.attempts import Attempts
from pilotfish.ollama_overlay.stock_floor import StockFloor
from tests.ollama_overlay.launches import launch


def test_a_blob_known_to_be_damaged_goes_to_stock(deciding, blob, state):
    data = blob.read_bytes()
    blob.unlink()
    blob.write_bytes(bytes(len(data)))
    os.utime(blob, (1, 1))
    assert deciding().runner, "nobody has looked yet; the runner does while it loads"
    entry = {"stamp": list(stamp(blob)), "facts": {"sha256": "0" * 64}}
    (state / "fingerprints.json").write_text(json.dumps({"format": 1, "files": {str(blob.resolve()): entry}}))

    decision = deciding()
    assert not decision.runner
    assert str(blob) in decision.reason
    assert "pull" in decision.reason


def stamp(path):
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def test_a_blob_that_was_hashed_and_is_sound_speculates(deciding, blob, state):
    os.utime(blob, (1, 1))
    file_digest(blob, state)
    assert deciding().runner


def test_a_tag_that_was_pulled_again_decodes_plainly_once(deciding, store, tmp_path):
    """Case 24: another manifest than the pinned one means plain decoding and a line, and the new pin is taken."""
    assert deciding().runner
    assert deciding().runner
    store.add_gguf("tiny:1b", tmp_path / "weights.gguf", system="Be brief.")

    decision = deciding()
    assert not decision.runner
    assert "pulled or created again" in decision.reason
    assert deciding().runner


def test_a_model_added_to_a_known_file_is_no_mismatch(deciding, store, tmp_path):
    assert deciding().runner
    store.add_gguf("another:1b", tmp_path / "weights.gguf", system="Be brief.")
    assert deciding().runner


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', "{" * 100_000])
def test_damaged_pins_count_as_none(deciding, state, text):
    state.mkdir()
    (state / "pins.json").write_text(text)
    assert deciding().runner


def test_after_two_loads_that_crashed_it_is_stock_for_a_day(deciding, blob, state):
    mark = Attempts(state, blob)._path
    mark.parent.mkdir(parents=True)
    mark.write_text("Fatal Python error: Segmentation fault\n\nCurrent thread\n")
    assert deciding().runner
    mark.write_text(mark.read_text() * 2)
    decision = deciding()
    assert not decision.runner
    assert "Segmentation fault" in decision.reason
    assert str(mark) in decision.reason

    os.utime(mark, (1, 1))
    assert deciding().runner


@pytest.fixture
def leaving(blob, monkeypatch, tmp_path, state):
    """`leaving(reason, *flags, config)`: what a runner does that finds nothing to gain with a launch."""
    monkeypatch.setenv("PILOTFISH_STATE", str(state))
    monkeypatch.setenv("PILOTFISH_STOCK", str(tmp_path / "llama-server"))
    os.utime(blob, (1, 1))
    time.sleep(0.06)  # what was changed a moment ago is not remembered

    def left(reason, *flags, config="", job=""):
        launched = parse_launch(launch(blob, *flags)).with_users()
        settings = in_force(parse(configuration.tomli.loads(config)), launched)
        StockFloor(str(tmp_path / "llama-server")).leave(launched, settings, Left(reason, time.time(), job=job))

    return left


def test_what_ended_at_stock_goes_there_at_once(deciding, leaving):
    assert deciding().runner
    leaving("its sliding window forgets")
    decision = deciding()
    assert (decision.runner, decision.reason) == (False, "its sliding window forgets")
    assert not deciding("--port", "17", "--alias", "other").runner


@pytest.mark.parametrize("change", ["a flag", "the config", "the stock server", "the weights"])
def test_until_anything_about_it_changes(deciding, leaving, change, tmp_path, blob):
    leaving("its sliding window forgets")
    if change == "the stock server":
        (tmp_path / "llama-server").touch()
    if change == "the weights":
        os.utime(blob, (2, 2))
    flags = ("--cache-type-k", "q8_0") if change == "a flag" else ()
    config = '[drafters]\norder = ["other"]' if change == "the config" else ""
    assert deciding(*flags, config=config).runner


def test_what_a_load_left_to_stock_is_certified_beside_it_where_it_may_help(deciding, leaving, blob, monkeypatch):
    monkeypatch.delenv("PILOTFISH_CERTIFY", raising=False)
    leaving("no wider lane was found")
    assert deciding().certify == ()
    leaving("no wider lane was found", job="a job")
    weights, under, seconds = deciding().certify
    assert (weights, seconds) == (str(blob), "60")
    monkeypatch.setenv("PILOTFISH_CERTIFY", "off")
    assert deciding().certify == ()
    monkeypatch.delenv("PILOTFISH_CERTIFY")
    LeftToStock(Path(os.environ["PILOTFISH_STATE"]), blob).tried(under)
    decision = deciding()
    assert (decision.runner, decision.certify) == (False, ())


def test_a_load_that_speculates_makes_up_for_it(deciding, leaving, blob):
    leaving("its sliding window forgets")
    with StockFloor("/stock").loading(blob):
        pass
    assert deciding().runner


def full(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_pin_that_cannot_be_taken_anew_is_no_reason_for_ever(deciding, store, tmp_path, monkeypatch):
    assert deciding().runner
    store.add_gguf("tiny:1b", tmp_path / "weights.gguf", system="Be brief.")
    monkeypatch.setattr(os, "fsync", full)
    assert deciding().runner
