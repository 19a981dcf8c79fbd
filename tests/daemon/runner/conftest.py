"""Our runner with the packaged model, and a stock llama-server with the same settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.runner.settings import SETTINGS
from tests.fakes.state import keep_lanes, with_known_lanes
from tests.server_processes import RUNNER, ServerProcess, running, stock_server


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An environment whose pilotfish state is the tests' own, so that a lane found once is remembered."""
    folder = with_known_lanes(tmp_path_factory.mktemp("state"))
    yield {"PILOTFISH_STATE": str(folder), "PILOTFISH_CONFIG": ""}
    keep_lanes(folder)


@pytest.fixture(scope="session")
def runner(
    smollm2_path: Path, state: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """Our runner, loaded."""
    log = tmp_path_factory.mktemp("runner") / "log"
    with running(RUNNER, smollm2_path, log, *SETTINGS, env=state) as server:
        yield server


@pytest.fixture(scope="session")
def stock(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A stock llama-server with the runner's cache types and flash attention."""
    log = tmp_path_factory.mktemp("stock") / "log"
    with running(stock_server(), smollm2_path, log, *SETTINGS) as server:
        yield server
