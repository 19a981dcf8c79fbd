"""SHA-256 digests in Ollama's two spellings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pilotfish.hooks.errors import BrokenModel

_PATTERN = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")


@dataclass(frozen=True, slots=True)
class Digest:
    """A SHA-256 digest. `hex` is 64 lowercase hex digits; `str()` gives `sha256:<hex>`."""

    hex: str

    @classmethod
    def parse(cls, text: str) -> Digest:
        """Read `sha256:<hex>` or `sha256-<hex>`; both name the same blob. Raises BrokenModel for anything else."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise BrokenModel(f"{text[:100]!r} is not a digest; expected sha256:<64 hex digits>: pull the model again")
        return cls(match[1].lower())

    @property
    def blob(self) -> str:
        """The blob's file name, `sha256-<hex>`."""
        return f"sha256-{self.hex}"

    @property
    def short(self) -> str:
        """Its first twelve digits, as Ollama lists them."""
        return self.hex[:12]

    def __str__(self) -> str:
        return f"sha256:{self.hex}"


def blob_digest(path: Path) -> Digest | None:
    """The digest a blob's file name states; None for any other name."""
    try:
        return Digest.parse(path.name)
    except BrokenModel:
        return None
