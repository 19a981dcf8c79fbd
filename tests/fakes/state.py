"""State folders for tests: empty but for the lanes that were found before, so that no test has to find them again."""

from __future__ import annotations

import shutil
from pathlib import Path

from pilotfish.manifests.remembered import FILE_NAME

SHARED = Path(__file__).resolve().parents[2] / ".cache" / "test-state"


def with_known_lanes(folder: Path) -> Path:
    """`folder`, made if need be, with what `SHARED` remembers of the engine and the model files."""
    folder.mkdir(parents=True, exist_ok=True)
    if (SHARED / FILE_NAME).is_file():
        shutil.copy2(SHARED / FILE_NAME, folder / FILE_NAME)
    return folder
