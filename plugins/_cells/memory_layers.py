"""What the layers of a GGUF keep of each token, from its header: cells, cells of a window, or a state.

Which layers keep a state is counted by their tensors. Which have a window only some files say; of others it is known by
architecture, and where it is not, every layer is taken to keep every cell: an upper bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from pilotfish.hooks.types import TargetPin
from pilotfish.manifests.gguf import GGUFMetadata, describe
from pilotfish.manifests.gguf_header import ArrayRef, Header, read_header
from pilotfish.manifests.gguf_numbers import GGUFValueType

_RUNNING = re.compile(r"blk\.(\d+)\.(ssm_|shortconv|time_mix|attn_state)")
_EVERY = {"gemma2": 2, "gpt-oss": 2, "cohere2": 4, "llama4": 4, "exaone4": 4, "gemma3": 6}
"""architecture -> one layer in so many sees everything"""
_FLOAT = 4  # bytes of a number of a state


@dataclass(frozen=True, slots=True)
class MemoryLayers:
    """`heads` and `window_heads` count key-value heads of all layers that keep cells, and cells of a window; `state` is
    bytes of all running states of one sequence, `window` tokens."""

    heads: int
    window_heads: int = 0
    window: int = 0
    state: int = 0


def memory_layers(pin: TargetPin) -> MemoryLayers:
    """What the layers of `pin` keep. Raises BrokenModel."""
    headers = [read_header(weight.path, pin.name) for weight in pin.weights]
    metadata = describe(headers[0])
    running = _running(headers)
    heads = [0 if layer in running else count for layer, count in enumerate(_heads(metadata))]
    window = number(metadata, "attention.sliding_window")
    windowed = _windowed(metadata) if window else (lambda layer: False)
    seen = sum(count for layer, count in enumerate(heads) if windowed(layer))
    return MemoryLayers(sum(heads) - seen, seen, window, _FLOAT * len(running) * _state(metadata))


def _heads(metadata: GGUFMetadata) -> list[int]:
    """Key-value heads, layer by layer."""
    found = numbers(metadata, "attention.head_count_kv") or (number(metadata, "attention.head_count", 1),)
    return list(found) if len(found) > 1 else [found[0]] * metadata.block_count  # one for each layer, or for all


def _running(headers: Collection[Header]) -> frozenset[int]:
    matches = (_RUNNING.match(tensor.name) for header in headers for tensor in header.tensors)
    return frozenset(int(match[1]) for match in matches if match)


def _windowed(metadata: GGUFMetadata) -> Callable[[int], bool]:
    """Whether a layer, by its number, has a window."""
    pattern = metadata.values.get(f"{metadata.architecture}.attention.sliding_window_pattern")
    if isinstance(pattern, ArrayRef) and pattern.element is not GGUFValueType.STRING:
        said = pattern.numbers()
        return lambda layer: layer < len(said) and bool(said[layer])
    every = pattern if isinstance(pattern, int) else _EVERY.get(metadata.architecture, 1)
    return lambda layer: layer % max(1, every) < every - 1


def _state(metadata: GGUFMetadata) -> int:
    """Numbers that one layer's state has: what convolutions look back on, and what moves on."""
    embedding, heads = metadata.embedding_length, number(metadata, "attention.head_count")
    if size := number(metadata, "wkv.head_size"):
        return embedding * (2 + size)
    if back := number(metadata, "shortconv.l_cache"):
        return embedding * (back - 1)
    back = max(0, number(metadata, "ssm.conv_kernel") - 1)
    if size := number(metadata, "kda.head_dim"):
        return heads * size * (size + 3 * (back or 3))
    inner, state = number(metadata, "ssm.inner_size"), number(metadata, "ssm.state_size")
    return back * (inner + 2 * number(metadata, "ssm.group_count") * state) + state * inner


def experts(pin: TargetPin) -> int:
    """How many experts a layer has; 0 for none. Raises BrokenModel."""
    return number(describe(read_header(pin.path, pin.name)), "expert_count")


def number(metadata: GGUFMetadata, key: str, default: int = 0) -> int:
    """The largest of the numbers under the architecture's `key`: some models have one for each layer."""
    return max(numbers(metadata, key), default=default)


def numbers(metadata: GGUFMetadata, key: str) -> tuple[int, ...]:
    """The whole numbers under the architecture's `key`: one, or as many as its array holds."""
    value = metadata.values.get(f"{metadata.architecture}.{key}")
    if isinstance(value, ArrayRef):
        found = () if value.element is GGUFValueType.STRING else value.numbers()
        return tuple(number for number in found if isinstance(number, int))
    return (value,) if isinstance(value, int) else ()
