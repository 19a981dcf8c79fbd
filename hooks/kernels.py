"""Batch-invariant kernels, as those who build them and the engine that loads them both know them."""

from __future__ import annotations

from collections.abc import Mapping

KERNELS = "PILOTFISH_KERNELS"  # names the library, for a process and those that it starts; or says "off"
KERNEL_TYPES: Mapping[str, int] = {"F32": 0, "F16": 1, "BF16": 30}  # of weights, with ggml's numbers
