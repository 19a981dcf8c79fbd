"""A launch with a projector: what it takes besides text is said, and both servers mean the same by the marker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pilotfish.daemon.runner.floor import StockServer
from pilotfish.daemon.runner.launch_arguments import parse
from pilotfish.daemon.runner.projector import MARKER_VARIABLE, TEXT_ONLY, media_marker, projector_of, with_marker
from pilotfish.hooks.errors import UsageError
from tests.manifests.builders import tiny_gguf


@pytest.fixture(autouse=True)
def a_process_of_its_own(monkeypatch):
    monkeypatch.delenv(MARKER_VARIABLE, raising=False)
    media_marker.cache_clear()
    yield
    media_marker.cache_clear()


def written(tmp_path: Path, **encoders: bool) -> Path:
    values = {f"clip.has_{what}_encoder": has for what, has in encoders.items()}
    return tiny_gguf(tmp_path / "projector.gguf", architecture="clip", tokens=None, merges=None, values=values)


@pytest.mark.parametrize(
    ("encoders", "modalities"),
    [({"vision": True}, ["text", "image"]), ({"audio": True, "vision": False}, ["text", "audio"]), ({}, ["text"])],
)
def test_the_projectors_file_says_what_it_takes(tmp_path, encoders, modalities):
    found = projector_of(written(tmp_path, **encoders))
    assert found.modalities == modalities
    assert found.marker == media_marker() != ""


def test_without_one_or_with_a_broken_one_it_is_text_only(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no")
    assert projector_of(None) == projector_of(broken) == TEXT_ONLY
    assert TEXT_ONLY.modalities == ["text"]


def test_the_marker_is_new_in_every_process_and_the_users_where_he_says_one(monkeypatch):
    mine = media_marker()
    assert media_marker() == mine
    media_marker.cache_clear()
    assert media_marker() != mine
    media_marker.cache_clear()
    monkeypatch.setenv(MARKER_VARIABLE, "<picture>")
    assert media_marker() == "<picture>"


def test_the_stock_server_beside_is_told_the_marker(tmp_path):
    stock = StockServer("/llama-server", {"A": "1"})
    assert with_marker(stock, None) is stock
    assert with_marker(None, tmp_path) is None
    beside = with_marker(stock, tmp_path)
    assert beside == StockServer("/llama-server", {"A": "1", MARKER_VARIABLE: media_marker()})
    assert MARKER_VARIABLE not in os.environ


def test_a_launch_with_one_is_served_and_does_not_shift_its_context_as_in_stock(tmp_path):
    file = written(tmp_path, vision=True)
    launch = parse(["--model", "m", "--context-shift", "--mmproj", str(file)], {})
    assert (launch.projector, launch.context_shift) == (file, False)
    assert parse(["--model", "m", "--context-shift"], {}).context_shift
    with pytest.raises(UsageError, match="there is no file"):
        parse(["--model", "m", "-mm", str(tmp_path / "none")], {})
