"""What engine settings mean for MLX."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, EngineSetting

FLOATS = ("f16", "bf16", "f32")  # cells are what the model computes with, whichever of these is asked for
BITS = {"q8_0": 8, "q4_0": 4}
_GROUPS = (64, 32)


@dataclass(frozen=True, slots=True)
class Quantized:
    """Keys and values of `bits` bits, `group_size` of which share a scale."""

    bits: int
    group_size: int


def exact_setting(options: EngineOptions) -> EngineSetting:
    """What the launch asked for; MLX's own attention unless it says no."""
    key = options.cache_type_k or options.cache_type_v or "f16"
    value = options.cache_type_v or options.cache_type_k or "f16"
    return EngineSetting(key, value, options.flash_attention is not False, engine="mlx")


def quantized(setting: EngineSetting, head: int, name: str) -> Quantized | None:
    """How cells of keys of `head` numbers are quantized; None for not at all. Raises EngineError for types that MLX's
    caches do not have."""
    key, value = setting.cache_type_k.lower(), setting.cache_type_v.lower()
    if key in FLOATS and value in FLOATS:
        return None
    if key != value or key not in BITS:
        kinds = ", ".join(("f16", *BITS))
        raise EngineError(f"{name}: keys in {key} and values in {value}: MLX has both in one of {kinds}")
    group = next((size for size in _GROUPS if head and head % size == 0), 0)
    if not group:
        raise EngineError(f"{name}: keys of {head} numbers cannot be quantized by MLX; leave the cache type open")
    return Quantized(BITS[key], group)
