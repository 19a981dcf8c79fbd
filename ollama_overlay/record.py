"""What an overlay was made from: `pilotfish-overlay.json` at the root of its tree."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import UsageError
from pilotfish.ollama_overlay.buildinfo import Build
from pilotfish.ollama_overlay.installation import Installation

FILE_NAME = "pilotfish-overlay.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Record:
    """The original, its build, the fingerprint of its llama-server and libraries, and who runs the runner.

    `binary` is the size and modification time (ns) of the original `ollama`.
    """

    original: Installation
    build: Build
    fingerprint: str
    binary: tuple[int, int]
    python: Path

    def write(self, tree: Path) -> None:
        """Put the record into a tree that is being made."""
        table: dict[str, Any] = {"format": FORMAT, **asdict(self)}
        (tree / FILE_NAME).write_text(json.dumps(table, default=str, indent=2) + "\n", encoding="utf-8")


def stamp(binary: Path) -> tuple[int, int]:
    """Size and modification time (ns). Raises OSError."""
    status = binary.stat()
    return status.st_size, status.st_mtime_ns


def read(tree: Path) -> Record | None:
    """The record of the overlay at `tree`; None when none is there. Raises UsageError when it is damaged."""
    path = tree / FILE_NAME
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        if table["format"] != FORMAT:
            raise ValueError(f"format {table['format']}")
        build = table["build"]
        original = table["original"]
        return Record(
            original=Installation(Path(original["binary"]), Path(original["library"])),
            build=Build(str(build["version"]), str(build["revision"]), bool(build["dirty"])),
            fingerprint=str(table["fingerprint"]),
            binary=(int(table["binary"][0]), int(table["binary"][1])),
            python=Path(table["python"]),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be used ({error}); remove {tree} and install the overlay again") from error
