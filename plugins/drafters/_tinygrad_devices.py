"""What is known of tinygrad's devices without tinygrad, and how much memory a model takes on one."""

from __future__ import annotations

from pilotfish.hooks.types import Footprint
from pilotfish.plugins.drafters._gguf_shape import ModelShape

SHARED = ("CPU", "METAL", "CUDA", "CL", "HIP", "WEBGPU", "PYTHON", "NULL")  # a driver of the system's shares them out
EXCLUSIVE = ("NV", "AMD", "QCOM", "DSP")  # tinygrad itself is the driver
_FLOAT = 4  # bytes; activations and cache are float32 whatever the weights


def footprint(shape: ModelShape, n_ctx: int, n_vocab: int, longest: int, device: str) -> Footprint:
    """The file as it is, float32 cells, and the largest buffers of a forward: scores, their mask, and the logits.

    `longest` is how many tokens a forward takes at most.
    """
    weights = sum(tensor.size for tensor in shape.tensors.values())
    scores = longest * n_ctx * (shape.number("attention.head_count", 1) + 1)
    hidden = longest * (shape.number("feed_forward_length", 0) + 4 * shape.number("embedding_length"))
    work = 2 * scores + hidden + 2 * n_vocab  # one to read and one to write
    return Footprint(weights, _FLOAT * (shape.cache_elements(n_ctx) + work), "cpu" if device == "CPU" else device)
