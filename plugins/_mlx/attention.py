"""The two ways in which an mlx-lm model's attention can be computed.

MLX's own operation chooses among kernels by the number of queries and by the length of the keys. The other way is the
same products one after the other, whose kernels are those of every matrix product. Which of the two gives a device more
widths of equal rows is for certification to find out.
"""

from __future__ import annotations

import sys
from types import ModuleType, TracebackType
from typing import Any

import mlx.core as mx
from mlx_lm.models import base

_NAME = "scaled_dot_product_attention"


class Attention:
    """While a forward of `model` is built, the way in which it attends: `fused`, by MLX's operation, or not."""

    def __init__(self, model: Any, *, fused: bool) -> None:
        self._modules = [] if fused else modules_that_attend(model)

    def __enter__(self) -> None:
        for module in self._modules:
            setattr(module, _NAME, product_attention)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for module in self._modules:
            setattr(module, _NAME, base.scaled_dot_product_attention)


def modules_that_attend(model: Any) -> list[ModuleType]:
    """The Python modules of the model's parts that call mlx-lm's attention by its name."""
    names = {type(part).__module__ for _, part in model.named_modules()}
    modules = [sys.modules[name] for name in sorted(names) if name in sys.modules]
    return [module for module in modules if getattr(module, _NAME, None) is base.scaled_dot_product_attention]


def product_attention(
    queries: Any, keys: Any, values: Any, cache: Any, scale: float, mask: Any, sinks: Any = None
) -> Any:
    """As mlx-lm's function of this name, in single products; queries `(1, heads, tokens, size)`."""
    if hasattr(cache, "bits") or sinks is not None:
        return base.scaled_dot_product_attention(queries, keys, values, cache, scale, mask, sinks)
    _, heads, count, size = queries.shape
    kv_heads, length = keys.shape[1], keys.shape[2]
    queries = (queries * scale).reshape(1, kv_heads, heads // kv_heads, count, size)
    scores = queries @ keys[:, :, None].swapaxes(-1, -2)
    if isinstance(mask, str):
        mask = mx.arange(length - count, length)[:, None] >= mx.arange(length)[None]
    if mask is not None:
        masked = mask.dtype == mx.bool_
        scores = mx.where(mask, scores, mx.finfo(scores.dtype).min) if masked else scores + mask
    found = mx.softmax(scores, axis=-1, precise=True) @ values[:, :, None]
    return found.reshape(1, heads, count, values.shape[-1])
