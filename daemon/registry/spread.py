"""What a model that is spread over machines is loaded with: far ends that are there, and what computes at each."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from pilotfish.daemon.config.types import Engine
from pilotfish.daemon.farends.looking import FarEndSeen, look
from pilotfish.daemon.registry import accelerators
from pilotfish.hooks.errors import ConfigError, EngineError
from pilotfish.hooks.types import EngineOptions, FarEnd

log = logging.getLogger("pilotfish.farends")

SHARES = 20  # of which each device gets a whole number
GIB = 1 << 30


def look_at(endpoints: Sequence[str], engine: Engine) -> tuple[FarEndSeen, ...]:
    """Look at far ends as a load with `engine` would. Which version of the protocol an Ollama's library speaks is not
    known."""
    return look(endpoints, protocol="" if engine.libllama == "ollama" else None)


def with_far_ends(
    options: EngineOptions, engine: Engine, looked: Callable[[Sequence[str]], Sequence[FarEndSeen]] | None = None
) -> EngineOptions:
    """`options`, with the far ends that `[engine]` names. They are looked at, since the engine's library ends the
    process that finds one missing.

    Raises EngineError with all that is in the way, unless the config says that models load without far ends then, and
    ConfigError where two names stand for one far end.
    """
    if not engine.rpc:
        return options
    seen = looked(engine.rpc) if looked else look_at(engine.rpc, engine)
    if twice := "; ".join(far_end.trouble for far_end in seen if far_end.same_as):
        raise ConfigError(f"engine.rpc: {twice}")
    if trouble := "; ".join(far_end.trouble for far_end in seen if far_end.trouble):
        if not engine.rpc_fallback:
            raise EngineError(f"the far ends in [engine] rpc cannot all be used: {trouble}")
        log.warning("loading without far ends: %s", trouble)
        return options
    split = engine.tensor_split or _by_free_memory(seen)
    pin = _pin if split else _pin_with_memory
    return replace(
        options,
        far_ends=tuple(FarEnd(far_end.endpoint, pin(far_end)) for far_end in seen),
        tensor_split=split,
        far_end_deadline=float(engine.rpc_deadline_s),
    )


def _by_free_memory(seen: Sequence[FarEndSeen]) -> tuple[float, ...]:
    """Shares as libllama would choose them, in steps coarse enough to be the same at the next load: which layers are
    where decides how rows are computed, so what is certified names it.

    Left to libllama where this machine has accelerators, of whose memory nothing is known before it is loaded.
    """
    free = [device.free for far_end in seen for device in far_end.devices]
    if not all(free) or accelerators.shown() or sys.platform != "linux":
        return ()
    return tuple(max(1, round(SHARES * part / sum(free))) / SHARES for part in free)


def _pin(seen: FarEndSeen) -> str:
    return seen.pin


def _pin_with_memory(seen: FarEndSeen) -> str:
    """With what libllama shares layers out by: as far as it is known, since no share is named."""
    each = (f"{one.total / GIB:.1f} GiB {_part(one.free, one.total)}/{SHARES} free" for one in seen.devices)
    return f"{seen.pin}, memory {' + '.join(each)}"


def _part(free: int, total: int) -> int:
    return round(SHARES * free / total) if total else 0
