"""A model like one of 1, 3 or 8 billion weights that says what the small one says: made once, and checked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from pilotfish.daemon.config.paths import cache_dir, state_dir
from pilotfish.daemon.config.types import STOCK_ENGINE
from pilotfish.daemon.lab.real_text.corner import planned_bytes, write_enlarged
from pilotfish.daemon.lab.real_text.likeness import Likeness
from pilotfish.daemon.lab.subjects import variant
from pilotfish.daemon.registry.chosen_verifier import chosen_verifier
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import EngineError, UsageError
from pilotfish.hooks.protocols import CertifiableVerifier
from pilotfish.hooks.types import EngineOptions, EngineSetting
from pilotfish.manifests.gguf_header import read_header
from pilotfish.manifests.pins import pin_file

_LONG_BLOCKS = ("_K", "IQ")  # in the names of formats
_SPARE = 1.15  # times a file that has to be free, on the disk and in memory
_CONTEXT = 256  # cells of the comparison
_TEXT = "The tide went out before dawn, and the boats lay where it had left them."
_ROWS = 12

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Target:
    """Weights to come as near to as whole hidden rows allow, and times as many blocks as the source."""

    parameters: float
    deeper: int = 1


LIKE = {"1b": Target(1.0e9), "3b": Target(3.2e9), "8b": Target(8.0e9, deeper=2)}


def enlarged(source: Path, like: str, kind: str, report: Report = lambda what: None) -> Path:
    """`source` as a model like `1b`, `3b` or `8b`, in a number format; made once in the cache folder.

    Raises UsageError for an unknown size or a model that is no llama, and EngineError where disk or memory are too
    small, libllama is missing, or the large model's rows are not the small one's.
    """
    if like not in LIKE:
        raise UsageError(f"like {like}: unknown; there are {', '.join(LIKE)}")
    plain = variant(source, "F16")
    own = Likeness.of(read_header(plain))
    target = LIKE[like]
    size = own.widened().filled(target.parameters, target.deeper * own.blocks)
    path = cache_dir() / "enlarged" / f"{plain.stem[:60]}.like-{like}.{kind}.gguf"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        make_enlarged(plain, path, size, kind, report)
    return path


def make_enlarged(plain: Path, path: Path, size: Likeness, kind: str, report: Report = lambda what: None) -> None:
    """Write the F16 model `plain` to `path` in these dimensions and this format, and compare rows. Raises as above."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    reference = _reference(plain, size, kind, partial, report)
    try:
        planned = planned_bytes(reference, size)
        need_room(planned, path.parent)
        report(f"writing {planned / 1e9:.1f} GB")
        write_enlarged(reference, partial, size)
        report("comparing rows")
        if rows_of(reference) != rows_of(partial):
            raise EngineError(f"the rows of {path.name} are not those of {reference.name}; do not measure with it")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
        if reference.parent == path.parent:
            reference.unlink(missing_ok=True)


def _reference(plain: Path, size: Likeness, kind: str, partial: Path, report: Report) -> Path:
    """What is enlarged, and has to have the same rows: the small model in that format where its blocks allow it."""
    report(f"quantizing to {kind}")
    if not any(mark in kind for mark in _LONG_BLOCKS):
        return variant(plain, kind)
    wide = Likeness.of(read_header(plain)).widened()
    need_room(planned_bytes(plain, wide), partial.parent)
    staged = partial.with_suffix(".wide.gguf")
    try:
        write_enlarged(plain, staged, wide)
        made = variant(staged, kind)
        return made.replace(partial.with_suffix(".quantized.gguf"))
    finally:
        staged.unlink(missing_ok=True)


def need_room(size: int, folder: Path) -> None:
    """Raises EngineError where the disk or the memory has no room for a file of so many bytes and its use."""
    need = _SPARE * size
    disk, memory = shutil.disk_usage(folder).free, psutil.virtual_memory().available
    for what, free in ((f"on the disk of {folder}", disk), ("of memory", memory)):
        if free < need:
            raise EngineError(
                f"{need / 1e9:.1f} GB are needed {what}, {free / 1e9:.1f} GB are free; "
                "choose a smaller size or format, or make room"
            )


def rows_of(path: Path) -> list[bytes]:
    """Digests of the rows of single steps over a text, in stock settings. Raises EngineError or BrokenModel."""
    verifier = chosen_verifier(Registry.load(), STOCK_ENGINE)
    if not isinstance(verifier, CertifiableVerifier):
        raise EngineError(f"the verifier {verifier.name!r} of a plugin has no rows to compare; remove the plugin")
    probe = verifier.probe(pin_file(path, state_dir()), EngineSetting(), 1, EngineOptions(n_ctx=_CONTEXT))
    try:
        rows: list[bytes] = []
        for token in probe.encode(_TEXT)[:_ROWS]:
            rows += probe.rows([token], 1)
        return rows
    finally:
        probe.close()
