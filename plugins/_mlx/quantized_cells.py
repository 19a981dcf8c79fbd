"""How cells are quantized."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quantized:
    """Keys and values of `bits` bits, `group_size` of which share a scale."""

    bits: int
    group_size: int
