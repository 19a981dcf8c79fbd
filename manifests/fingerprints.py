"""Digests of weight files, of the tokenizer inside one, and of an engine's libraries.

Reading tens of gigabytes takes a minute, so what was found is remembered per file (see `remembered`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.types import TokenizerPin
from pilotfish.manifests.digests import Digest
from pilotfish.manifests.gguf import GGUFMetadata, read_metadata
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.remembered import Remembered, stamp_of
from pilotfish.manifests.tokenizer import fingerprint_tokenizer

TOKENIZER_FORMAT = 1  # counted up when what enters the fingerprint changes


def file_digest(path: Path, state_dir: Path | None = None) -> Digest:
    """The SHA-256 of a file's bytes, read at most once for each state of the file. Raises BrokenModel."""
    remembered = Remembered(state_dir)
    try:
        stamp = stamp_of(path)
        known = remembered.get(path, "sha256", stamp)
        if isinstance(known, str):
            return Digest(known)
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        remembered.put(path, "sha256", stamp, found)
    except OSError as error:
        raise BrokenModel(f"{path} cannot be read: {error.strerror}; pull the model again") from error
    return Digest(found)


def known_digest(path: Path, state_dir: Path | None) -> Digest | None:
    """The digest that was found earlier for the file as it is now; None when it would have to be read."""
    try:
        known = Remembered(state_dir).get(path, "sha256", stamp_of(path))
    except OSError:
        return None
    return Digest(known) if isinstance(known, str) else None


def verify_blob(path: Path, expected: Digest, state_dir: Path | None = None, model: ModelName | str = "") -> None:
    """Make sure that a blob holds what its name says. Raises BrokenModel naming the blob and `model`."""
    found = file_digest(path, state_dir)
    if found != expected:
        owner = f" of {model}" if model else ""
        raise BrokenModel(f"blob {path}{owner} was damaged: its bytes hash to {found}; remove the blob and pull again")


def tokenizer_pin(path: Path, state_dir: Path | None = None, metadata: GGUFMetadata | None = None) -> TokenizerPin:
    """The pin of the tokenizer in a GGUF file, computed at most once for each state of the file.

    `metadata` saves reading the header again. Raises BrokenModel when the file or its vocabulary is broken.
    """
    return remembered_pin(
        path,
        f"tokenizer-{TOKENIZER_FORMAT}",
        state_dir,
        lambda: fingerprint_tokenizer(metadata or read_metadata(path)),
    )


def remembered_pin(path: Path, fact: str, state_dir: Path | None, take: Callable[[], TokenizerPin]) -> TokenizerPin:
    """The pin that `take` gives, taken at most once for each state of the file. Raises BrokenModel when it is gone."""
    remembered = Remembered(state_dir)
    try:
        stamp = stamp_of(path)
    except OSError as error:
        raise BrokenModel(f"{path} cannot be read: {error.strerror}; pull the model again") from error
    if (pin := _pin(remembered.get(path, fact, stamp))) is not None:
        return pin
    pin = take()
    remembered.put(path, fact, stamp, [getattr(pin, field) for field in TokenizerPin.__slots__])
    return pin


def library_fingerprint(paths: Iterable[Path], state_dir: Path | None = None) -> str:
    """One SHA-256 (hex) over the names and contents of an engine's libraries, in any order."""
    digests = sorted((path.name, file_digest(path, state_dir).hex) for path in paths)
    return hashlib.sha256("".join(f"{name}\0{digest}\n" for name, digest in digests).encode()).hexdigest()


_PIN_TYPES = (str, str, int, int | None, int | None, bool, bool)


def _pin(fields: object) -> TokenizerPin | None:
    """A remembered pin; None when the entry is not one."""
    if not isinstance(fields, list) or len(fields) != len(_PIN_TYPES):
        return None
    if not all(isinstance(value, kind) for value, kind in zip(fields, _PIN_TYPES, strict=True)):
        return None
    return TokenizerPin(*fields)
