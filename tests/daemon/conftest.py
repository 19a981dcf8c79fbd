"""A plugin folder of a test's own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "plugins"
    folder.mkdir(mode=0o700)
    return folder
