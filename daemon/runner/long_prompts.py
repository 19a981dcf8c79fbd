"""Where a loaded engine reads long prompts: as fast as it can, or in its lane."""

from __future__ import annotations

from collections.abc import Callable

from pilotfish.hooks.protocols import ReadsPromptsFast, TargetEngine


def read_long_prompts(engine: TargetEngine, how: str, free: Callable[[], int]) -> None:
    """`how` is what `[engine] prompts` says; `free()` is asked for every long prompt, in bytes."""
    if how == "fast" and isinstance(engine, ReadsPromptsFast):
        engine.read_prompts_fast(free)


def long_prompts_read(engine: TargetEngine) -> str:
    """Where it reads them, for a person; safe from any thread."""
    return engine.prompts_read if isinstance(engine, ReadsPromptsFast) else "in the lane"
