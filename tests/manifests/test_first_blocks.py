"""First blocks are offered where they tell what the whole model would, and leave nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import psutil
import pytest

from pilotfish.hooks.types import TargetPin
from pilotfish.manifests.first_blocks import FOLDER, first_blocks
from tests.manifests.builders import tiny_gguf

BLOCKS = tuple(f"blk.{number}.attn_q.weight" for number in range(8))


def pinned(path: Path, pin_of: Callable[[Path], TargetPin], architecture: str = "llama", **said: object) -> TargetPin:
    values = {f"{architecture}.block_count": len(BLOCKS), **said}
    return pin_of(tiny_gguf(path, architecture=architecture, tensors=("token_embd.weight", *BLOCKS), values=values))


def test_they_are_pinned_while_the_block_lasts(tmp_path: Path, pin_of: Callable[[Path], TargetPin]) -> None:
    pin = pinned(tmp_path / "model.gguf", pin_of)
    with first_blocks(pin, tmp_path) as part:
        assert part is not None
        assert (part.kept, part.blocks) == (1, 8)
        assert part.pin.path.is_file()
        assert part.pin.weights[0].size == part.pin.path.stat().st_size < pin.weights[0].size
        assert part.pin.weights[0].digest != pin.weights[0].digest
        assert part.pin.tokenizer == pin.tokenizer
    assert not any((tmp_path / FOLDER).iterdir())


@pytest.mark.parametrize(
    ("architecture", "format", "said"),
    [
        ("gemma3", "gguf", {}),
        ("llama", "safetensors", {}),
        ("llama", "gguf", {"llama.attention.sliding_window": 512}),
    ],
)
def test_a_model_whose_blocks_may_differ_in_more_than_matrices_is_left_whole(
    tmp_path: Path, pin_of: Callable[[Path], TargetPin], architecture: str, format: str, said: dict[str, object]
) -> None:
    pin = replace(pinned(tmp_path / "model.gguf", pin_of, architecture, **said), format=format)
    with first_blocks(pin, tmp_path) as part:
        assert part is None


class Usage(NamedTuple):
    """What `shutil.disk_usage` tells."""

    total: int
    used: int
    free: int


@pytest.mark.parametrize("what", ["disk", "memory"])
def test_without_room_the_model_is_left_whole(
    what: str, tmp_path: Path, pin_of: Callable[[Path], TargetPin], monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = pinned(tmp_path / "model.gguf", pin_of)
    if what == "disk":
        monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(100, 90, 10))
    else:
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=10))
    with first_blocks(pin, tmp_path) as part:
        assert part is None


def test_a_folder_that_cannot_be_written_leaves_the_model_whole(
    tmp_path: Path, pin_of: Callable[[Path], TargetPin]
) -> None:
    (tmp_path / "state").write_text("a file")
    with first_blocks(pinned(tmp_path / "model.gguf", pin_of), tmp_path / "state") as part:
        assert part is None


def test_what_killed_processes_have_left_is_removed(tmp_path: Path, pin_of: Callable[[Path], TargetPin]) -> None:
    pin = pinned(tmp_path / "model.gguf", pin_of)
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    folder = tmp_path / FOLDER
    folder.mkdir()
    left, ours = folder / f"{int(ended.stdout)}-7.gguf", folder / f"{os.getpid()}-7.gguf"
    left.write_bytes(b"left")
    ours.write_bytes(b"in use")
    with first_blocks(pin, tmp_path) as part:
        assert part is not None
        assert (left.exists(), ours.exists()) == (False, True)
