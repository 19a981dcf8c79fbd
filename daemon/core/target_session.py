"""A request's session on the target, in a slot of its own where the engine has several."""

from __future__ import annotations

from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.hooks.protocols import HasSlots, RestoresStates, TargetEngine, TargetSession, TellsCosts


def open_target(engine: TargetEngine, request: GenerationRequest) -> TargetSession:
    """Raises ContextOverflow, RequestError or EngineError."""
    if isinstance(engine, HasSlots) and request.slot is not None:
        slot = request.slot % engine.slots  # as llama-server: every number is one of a slot
        return engine.open(request.prompt, request.sampling, cache_prompt=request.cache_prompt, slot=slot)
    return engine.open(request.prompt, request.sampling, cache_prompt=request.cache_prompt)


def going_back_of(engine: TargetEngine) -> float | None:
    """Seconds that the engine takes a rejected block back in; None where it cuts what is rejected."""
    return engine.going_back if isinstance(engine, RestoresStates) else None


def costs_of(engine: TargetEngine) -> tuple[tuple[int, int, float], ...]:
    """What forwards took while the engine loaded: (width, position, seconds); none where it does not tell."""
    return engine.costs if isinstance(engine, TellsCosts) else ()
