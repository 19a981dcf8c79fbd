"""The device that MLX computes on, without mlx-lm: importing that takes a second, this 20 ms."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from pilotfish.hooks.errors import EngineError


def device_of(name: str) -> Any:
    """`cpu`, `gpu`, or MLX's own choice for an empty name. Raises EngineError when this MLX has no GPU."""
    if name == "gpu" and not mx.is_available(mx.gpu):
        raise EngineError('drafters.mlx.device = "gpu": this MLX sees no GPU; use "cpu" or leave the key out')
    return mx.default_device() if not name else mx.Device(mx.gpu if name == "gpu" else mx.cpu)


def memory_of(device: Any) -> str:
    """Whose memory it is, as `Footprint.device` names it."""
    if device.type != mx.DeviceType.gpu:
        return "cpu"
    return "Metal" if mx.metal.is_available() else f"CUDA{device.index}" if hasattr(device, "index") else "CUDA0"


def float_type(device: Any) -> Any:
    """What plain weights, and with them the activations and the cache, are held in.

    A CPU has no arithmetic for half precision in MLX: measured 5.4 s a token instead of 0.15 s.
    """
    return mx.float16 if device.type == mx.DeviceType.gpu else mx.float32
