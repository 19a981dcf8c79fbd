"""The engines that can compute on this machine, for what the lab measures of each."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.config.types import ENGINES, STOCK_ENGINE, Config
from pilotfish.daemon.registry.chosen_verifier import usable_verifier
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import EngineError, PilotfishError
from pilotfish.hooks.types import Parity


def engines_here(config: Config, wanted: Sequence[str] = ()) -> tuple[list[str], dict[str, str]]:
    """The installed engines, and why the others are left out, with the remedy. Loads none.

    Raises EngineError when one of `wanted` is not installed, or none is.
    """
    registry = Registry.load(config)
    found, missing = list[str](), dict[str, str]()
    for name in wanted or ENGINES:
        try:
            if config.speculation.parity == Parity.STOCK and name != STOCK_ENGINE:
                raise EngineError(f'parity = "stock" keeps to {STOCK_ENGINE}')
            usable_verifier(registry, name, state_dir())
            found.append(name)
        except (PilotfishError, OSError) as error:
            missing[name] = str(error)
    if wanted and missing:
        raise EngineError("; ".join(missing.values()))
    if not found:
        raise EngineError("no engine is installed: " + "; ".join(missing.values()))
    return found, missing


def engine_for(config: Config) -> str:
    """The config's choice where it is installed, else the first that is. Raises EngineError when none is."""
    found, _ = engines_here(config)
    return config.engine.choice if config.engine.choice in found else found[0]
