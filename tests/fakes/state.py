"""State folders for tests: empty but for the lanes that were found before, so that no test has to find them again."""

from __future__ import annotations

import shutil
from pathlib import Path

SHARED = Path(__file__).resolve().parents[2] / ".cache" / "test-state"
REMEMBERED = ("llama-lanes.json", "llama-libraries.json", "fingerprints.json")


def with_known_lanes(folder: Path) -> Path:
    """`folder`, made if need be, with what `SHARED` remembers of the engine and the model files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in REMEMBERED:
        if (SHARED / name).is_file():
            shutil.copy2(SHARED / name, folder / name)
    return folder
