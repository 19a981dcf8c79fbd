"""What a model that is spread over machines is loaded with: far ends that are there, and what computes at each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from pilotfish.daemon.config.types import Engine
from pilotfish.daemon.farends.looking import FarEndSeen, look
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, FarEnd

log = logging.getLogger("pilotfish.farends")


def look_at(endpoints: Sequence[str], engine: Engine) -> tuple[FarEndSeen, ...]:
    """Look at far ends as a load with `engine` would. Which version of the protocol an Ollama's library speaks is not
    known."""
    return look(endpoints, protocol="" if engine.libllama == "ollama" else None)


def with_far_ends(
    options: EngineOptions, engine: Engine, looked: Callable[[Sequence[str]], Sequence[FarEndSeen]] | None = None
) -> EngineOptions:
    """`options`, with the far ends that `[engine]` names. They are looked at, since the engine's library ends the
    process that finds one missing.

    Raises EngineError with all that is in the way, unless the config says that models load without far ends then.
    """
    if not engine.rpc:
        return options
    seen = looked(engine.rpc) if looked else look_at(engine.rpc, engine)
    if trouble := "; ".join(far_end.trouble for far_end in seen if far_end.trouble):
        if not engine.rpc_fallback:
            raise EngineError(f"the far ends in [engine] rpc cannot all be used: {trouble}")
        log.warning("loading without far ends: %s", trouble)
        return options
    return replace(
        options,
        far_ends=tuple(FarEnd(far_end.endpoint, far_end.pin) for far_end in seen),
        tensor_split=engine.tensor_split,
        far_end_deadline=float(engine.rpc_deadline_s),
    )
