"""What is true of one engine is true of the other: tests of sessions run on both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pilotfish.hooks.types import EngineSetting, Lane
from tests.engines import EngineOf

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16)
LANES = {
    "llama": Lane("test", _WIDTHS, EngineSetting("bf16", "f16")),
    "ik": Lane("test", _WIDTHS, EngineSetting("f16", "f16", flash_attention=False, engine="ik")),
}


@pytest.fixture(params=["llama", "ik"])
def verifier(request: pytest.FixtureRequest) -> str:
    """The registry name of the verifier under test."""
    name: str = request.param
    return name


@pytest.fixture
def lane(verifier: str) -> Lane:
    """One that is given, not found, in the verifier's exact setting."""
    return LANES[verifier]


@pytest.fixture
def engine(engine_of: EngineOf, verifier: str) -> Iterator[CellEngine]:
    """The shared Q4_1 engine, with its slot freed after the test whatever the test did."""
    shared = engine_of("Q4_1", verifier)
    yield shared
    for session in list(shared.sessions):
        session.close()
