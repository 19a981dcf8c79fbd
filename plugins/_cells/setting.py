"""What engine settings are made of, as the libraries of the llama.cpp family count it."""

from __future__ import annotations

import os
from collections.abc import Mapping

import psutil

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineSetting, TargetPin

CACHE_TYPES = {
    "f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2, "q4_1": 3, "iq4_nl": 20, "q5_0": 6, "q5_1": 7,
}  # fmt: skip

CELL_BLOCK = 256  # cells are allotted in multiples of this


def check_setting(pin: TargetPin, setting: EngineSetting, engine: str) -> None:
    """Raise EngineError unless `engine`, whose library may not be loaded yet, can compute in `setting`."""
    if setting.engine != engine:
        raise EngineError(f"{pin.name}: the setting {setting.title!r} is {setting.engine}'s, not {engine}'s")
    for name, value in setting.environment:
        if os.environ.get(name) != value:  # ggml reads these once, so it is too late to set them here
            raise EngineError(f"{pin.name}: its engine setting needs {name}={value}; set it at the start")


def cache_type(pin: TargetPin, name: str, known: Mapping[str, int]) -> int:
    """ggml's number of a cache type. Raises EngineError for one that the engine does not offer."""
    try:
        return known[name.lower()]
    except KeyError:
        raise EngineError(f"{pin.name}: unknown cache type {name!r}; use one of {', '.join(known)}") from None


def default_threads() -> int:
    """Physical cores, as llama-server counts them, within what this process may use."""
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    return max(1, min(cores, allowed))
