"""How the tensors of an MLX model are quantized: what a blob's metadata or the model's config.json says of it.

The number formats are those of `mx.quantize`: https://ml-explore.github.io/mlx/build/html/python/_autosummary/mlx.core.quantize.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_AFFINE = {"int4": 4, "q4": 4, "fp4": 4, "int8": 8, "q8": 8, "fp8": 8}  # Ollama's names; "fp4" is no float there
_FLOATS = {"nvfp4": (16, 4), "mxfp4": (32, 4), "mxfp8": (32, 8)}  # group size, bits: each mode has one pair
_MAX_DIGITS = 6  # of a group size
_GROUP = 64  # of affine quantization where nothing is said
_USUAL_BITS = {16: 4, 32: 4, 64: 4, 128: 8, 256: 8}  # by the group that 4 bits would have; Ollama groups by 64


@dataclass(frozen=True, slots=True)
class Quantization:
    """One way of quantizing, by MLX's names: `group_size` weights share a scale, each has `bits` bits.

    `mode` is `affine` (scales and biases), `nvfp4`, `mxfp4` or `mxfp8` (scales only), or a name unknown here.
    """

    mode: str = "affine"
    group_size: int = _GROUP
    bits: int = 4

    def fits(self, columns: int, scale_columns: int) -> bool:
        """Whether a row of `columns` packed 32-bit words with `scale_columns` scales is quantized so."""
        return columns * 32 == self.bits * self.group_size * scale_columns > 0

    @property
    def ollama_type(self) -> str:
        """Ollama's name: `int4`, `int8`, `nvfp4`, `mxfp4`, `mxfp8`; empty for what it has none for."""
        if self.mode == "affine":
            return f"int{self.bits}" if self.bits in (4, 8) else ""
        return self.mode if self.mode in _FLOATS else ""

    @property
    def title(self) -> str:
        """For people: `affine, 4 bits in groups of 64`."""
        return f"{self.mode}, {self.bits} bits in groups of {self.group_size}"


def named(quant_type: str, group_size: str = "") -> Quantization | None:
    """The quantization that a blob's `quant_type` and `group_size` name; None for an empty or unknown type."""
    kind = quant_type.strip().lower()
    group = int(group_size) if len(group_size) <= _MAX_DIGITS and group_size.isdecimal() else 0
    if kind in _FLOATS:
        usual, bits = _FLOATS[kind]
        return Quantization(kind, group or usual, bits)
    if kind in _AFFINE:
        return Quantization("affine", group or _GROUP, _AFFINE[kind])
    return None


def in_metadata(metadata: Mapping[str, str], tensor: str) -> Quantization | None:
    """What the metadata of a blob says of one of its tensors: its own entry, else that of the whole blob."""
    own = named(metadata.get(f"{tensor}.quant_type", ""), metadata.get(f"{tensor}.group_size", ""))
    return own or named(metadata.get("quant_type", ""), metadata.get("group_size", ""))


def in_config(config: Mapping[str, Any], module: str = "") -> Quantization | None:
    """What a config.json in mlx-lm's manner says of the model, or of one module where that has an entry of its own."""
    table = config.get("quantization") or config.get("quantization_config")
    if not isinstance(table, Mapping):
        return None
    own = table.get(module) if module else None
    found = own if isinstance(own, Mapping) else table
    bits, group, mode = found.get("bits"), found.get("group_size"), found.get("mode", "affine")
    if type(bits) is not int or type(group) is not int or not isinstance(mode, str):
        return None
    return Quantization(mode, group, bits)


def of_shapes(columns: int, scale_columns: int, hint: Quantization | None = None) -> Quantization | None:
    """The affine quantization that fits a row of `columns` packed words and `scale_columns` scales; None if none does.

    A row may be of 4 bits in groups of n or of 8 bits in groups of n/2: the bits of `hint` decide, else what is usual.
    """
    group = columns * 8 // scale_columns if scale_columns else 0  # of 4 bits; half of it of 8 bits
    bits = hint.bits if hint is not None and hint.bits in (4, 8) else _USUAL_BITS.get(group, 0)
    found = Quantization("affine", group * 4 // bits, bits) if bits else None
    return found if found and found.fits(columns, scale_columns) else None
