"""What a subclass of a suite has to bring."""

from __future__ import annotations

from typing import NoReturn

import pytest


def needs(fixture: str) -> NoReturn:
    """End the test with the name of the fixture that its class lacks."""
    pytest.fail(f"give the suite a fixture `{fixture}`", pytrace=False)
