"""The floor of a runner that Ollama started: the stock llama-server that the shim names in the environment."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.runner.floor import NO_FLOOR, Floor, StockServer
from pilotfish.ollama_overlay.attempts import Attempts
from pilotfish.ollama_overlay.stock import become_stock, stock_environment, stock_server


class StockFloor:
    """The stock llama-server at `program`. Ollama reads sizes and devices from the engine's log."""

    engine_log_is_read = True

    def __init__(self, program: str) -> None:
        self._program = program

    def stock(self) -> StockServer:
        return StockServer(self._program, stock_environment())

    @contextlib.contextmanager
    def loading(self, model: Path) -> Iterator[None]:
        """A crash counts against the weight file, until a load of it succeeds. Raises ConfigError without a home."""
        attempts = Attempts(state_dir(), model)
        with attempts.watched():
            yield
        attempts.forget()

    def land(self, reason: str, argv: Sequence[str]) -> None:
        """Become the stock server; raises OSError when it cannot be started."""
        become_stock(reason, argv)


def floor_of_this_process() -> Floor:
    """Stock, where the shim started this process."""
    program = stock_server()
    return StockFloor(program) if program else NO_FLOOR
