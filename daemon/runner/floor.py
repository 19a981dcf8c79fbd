"""What a runner falls back on: what whoever started it would have had without pilotfish.

Under Ollama that is the stock llama-server: what Ollama starts there hands its floor to `main.main`. `pilotfish serve`
and a runner that is started by hand have none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pilotfish.daemon.certify.left_to_stock import Left
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.runner.launch_arguments import Launch


@dataclass(frozen=True, slots=True)
class StockServer:
    """The program that would serve the model, and the environment that was meant for it."""

    program: str
    environment: Mapping[str, str]


class Floor(Protocol):
    """Where a runner lands when it cannot do its work."""

    engine_log_is_read: bool  # whether libllama's log has to go to stderr, because whoever started the runner reads it

    def stock(self) -> StockServer | None:
        """The server to start beside the runner for what it does not serve itself; None where there is none."""

    def loading(self, model: Path) -> AbstractContextManager[None]:
        """Surrounds the load of a weight file: a crash inside is remembered. Crashes, and what `leave` was told of the
        file, are forgotten when the block ends well.
        """

    def crashed(self, model: Path) -> str:
        """Why a weight file should not be loaded on this machine now, after crashes; empty where it may be."""

    def leave(self, launch: Launch, config: Config, left: Left) -> None:
        """Remember that a launch is stock's, so that the next one like it is from the start. Raises nothing."""

    def land(self, reason: str, argv: Sequence[str]) -> None:
        """Turn this process into what a launch with arguments `argv` would have been; returns where that is nothing.

        The port that this process listened on must be closed. Raises OSError when it cannot be done.
        """


class NoFloor:
    """Nothing to fall back on: a failure is an exit code, and what is not served is refused."""

    engine_log_is_read = False

    def stock(self) -> StockServer | None:
        return None

    def loading(self, model: Path) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def crashed(self, model: Path) -> str:
        return ""

    def leave(self, launch: Launch, config: Config, left: Left) -> None:
        """Do nothing: there is no stock."""

    def land(self, reason: str, argv: Sequence[str]) -> None:
        """Return: there is nothing to turn into."""


NO_FLOOR = NoFloor()
