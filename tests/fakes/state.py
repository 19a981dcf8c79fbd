"""State folders for tests: empty but for the lanes that were found before, so that no test has to find them again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from pilotfish.manifests.remembered import FILE_NAME, Remembered

SHARED = Path(__file__).resolve().parents[2] / ".cache" / "test-state"
KEPT = ("lane ", "sha256", "fits", "ik ")  # how the facts begin that hold for whoever asks


def with_known_lanes(folder: Path, source: Path = SHARED) -> Path:
    """`folder`, made if need be, with what `source` remembers of the engine and the model files, or its own."""
    folder.mkdir(parents=True, exist_ok=True)
    if (source / FILE_NAME).is_file() and not (folder / FILE_NAME).exists():
        shutil.copy2(source / FILE_NAME, folder / FILE_NAME)
    return folder


def keep_lanes(folder: Path, target: Path = SHARED) -> None:
    """Have `target` remember what `folder` found out about files and lanes, and no verdict."""
    if not (folder / FILE_NAME).is_file():
        return
    remembered = Remembered(target)
    for file, entry in json.loads((folder / FILE_NAME).read_text())["files"].items():
        for fact, value in entry["facts"].items():
            known = remembered.get(Path(file), fact, entry["stamp"])
            if known is None and fact.startswith(KEPT) and Path(file).exists():
                remembered.put(Path(file), fact, entry["stamp"], value)
