"""The floor of a runner that Ollama started: the stock llama-server that the shim names in the environment."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pilotfish.daemon.certify.left_to_stock import Left, LeftToStock
from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.control import decision_log
from pilotfish.daemon.runner.floor import NO_FLOOR, Floor, StockServer
from pilotfish.daemon.runner.launch_arguments import Launch, model_path
from pilotfish.hooks.errors import ConfigError
from pilotfish.ollama_overlay.attempts import Attempts
from pilotfish.ollama_overlay.circumstances import circumstances
from pilotfish.ollama_overlay.decision import ENGINE_PACKAGES, model_name
from pilotfish.ollama_overlay.stock import become_stock, stock_environment, stock_server


class StockFloor:
    """The stock llama-server at `program`. Ollama reads sizes and devices from the engine's log."""

    engine_log_is_read = True

    def __init__(self, program: str) -> None:
        self._program = program
        self._environment = stock_environment()  # now: a lane may change variables that engines read

    def stock(self) -> StockServer:
        return StockServer(self._program, self._environment)

    @contextlib.contextmanager
    def loading(self, model: Path) -> Iterator[None]:
        """A crash counts against the weight file, until a load of it succeeds. Raises ConfigError without a home."""
        attempts = Attempts(state_dir(), model)
        with attempts.watched():
            yield
        attempts.forget()
        LeftToStock(state_dir(), model).forget()

    def crashed(self, model: Path) -> str:
        return Attempts(state_dir(), model).reason()

    def leave(self, launch: Launch, config: Config, left: Left) -> None:
        packages = ENGINE_PACKAGES.values()
        under = circumstances(launch, config, self._environment, packages, Path(self._program))
        LeftToStock(state_dir(), launch.model).put(under, left)

    def land(self, reason: str, argv: Sequence[str]) -> None:
        """Become the stock server, and note it where the shim noted the runner; raises OSError when it cannot be
        started."""
        with contextlib.suppress(OSError, ConfigError):
            decision_log.record(state_dir(), model_name(model_path(argv)), "stock", reason)
        become_stock(reason, argv, self._environment)


def floor_of_this_process() -> Floor:
    """Stock, where the shim started this process."""
    program = stock_server()
    return StockFloor(program) if program else NO_FLOOR
