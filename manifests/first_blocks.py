"""A model's first blocks in a file of their own, on which rows are compared in a fraction of the time.

Whether the rows of two widths are alike is decided product by product: by the code that an engine takes for so many
rows of such a matrix. Where every block of a model has the same operations on matrices of the same shapes and formats,
a few blocks show what all of them would: as many as contain one of every kind, with what is before and behind them.
What forwards cost is told by the whole model alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from pilotfish.hooks.errors import PilotfishError
from pilotfish.hooks.types import TargetPin, WeightPin
from pilotfish.manifests.cut_model import CutModel
from pilotfish.manifests.gguf_header import read_header

log = logging.getLogger("pilotfish.manifests")

FOLDER = "first-blocks"  # in the state folder
MOST = 0.5  # of the weights: more would save too little
ROOM = 2  # times the file that must be free, on the disk and in memory

ALIKE = frozenset({"gemma", "granite", "llama", "mistral3", "phi2", "qwen2", "qwen2moe", "qwen3", "qwen3moe"})
"""Architectures whose blocks differ in nothing but their matrices: no windows here and there, no states."""


@dataclass(frozen=True, slots=True)
class FirstBlocks:
    """The file, pinned, and how many of how many blocks it has."""

    pin: TargetPin
    kept: int
    blocks: int

    @property
    def told(self) -> str:
        """For people, who read a certificate."""
        return f"rows were compared in the first {self.kept} of {self.blocks} blocks, and some in all of them"


@contextlib.contextmanager
def first_blocks(pin: TargetPin, state_dir: Path | None) -> Iterator[FirstBlocks | None]:
    """The file while the `with` lasts; None where only the whole model can tell, or where there is no room for it."""
    cut = _cut(pin) if state_dir else None
    if cut is None or state_dir is None:
        yield None
        return
    path = state_dir / FOLDER / f"{os.getpid()}-{id(cut):x}.gguf"
    try:
        made = _written(path, cut)
        weight = WeightPin(f"{pin.weights[0].digest}-{cut.kept}", path, path.stat().st_size if made else 0)
        yield FirstBlocks(replace(pin, weights=(weight,)), cut.kept, cut.blocks) if made else None
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _cut(pin: TargetPin) -> CutModel | None:
    if pin.format != "gguf" or len(pin.weights) != 1:
        return None
    try:
        header = read_header(pin.path, pin.name)
    except PilotfishError:  # whoever loads it says so
        return None
    windows = any(key.endswith("attention.sliding_window") and value for key, value in header.values.items())
    alike = header.values.get("general.architecture") in ALIKE and not windows
    cut = CutModel.of(header) if alike else None
    return cut if cut and cut.share <= MOST else None


def _written(path: Path, cut: CutModel) -> bool:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _tidy(path.parent)
        free = min(shutil.disk_usage(path.parent).free, psutil.virtual_memory().available)
        if free < ROOM * cut.size:
            log.info(
                "no room for %d bytes of first blocks in %s or in memory: %d are free", cut.size, path.parent, free
            )
            return False
        cut.write(path)
    except (OSError, ValueError) as error:
        log.info("the first blocks of %s cannot be kept in %s: %s", cut.header.path, path.parent, error)
        return False
    return True


def _tidy(folder: Path) -> None:
    """Remove what processes have left that were killed."""
    for path in folder.glob("*-*.gguf"):
        number = path.name.partition("-")[0]
        if number.isdigit() and not psutil.pid_exists(int(number)):
            path.unlink(missing_ok=True)
