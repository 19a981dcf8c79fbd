"""No test of the daemon meets the home of whoever runs it."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _at_home(home: Path) -> None:
    """Every test has a home of its own."""
