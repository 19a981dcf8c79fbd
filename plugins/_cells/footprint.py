"""How much memory a GGUF will take, from its header alone.

Compared with the buffers that libllama reports when it loads SmolLM2 (bf16/f16 caches, flash attention):

- weights: the file's size. Of a repacked tensor there is a second copy, but nobody reads the mapped one again.
- cache: layers x key-value heads x (key + value size) x cells, in the cache's types; equal to the byte. A sliding
  window's layers have the cells of its ring where the engine makes one, and layers that keep a state have that, once
  and for each snapshot and mark, of which the copy that is written back is one where there are no snapshots.
- working buffers: 16.5 MiB and the mask for blocks of 512 tokens, where libllama takes 13.5 MiB and the mask: an upper
  bound on CPU, in proportion to the block's length as libllama's is. Without flash attention the scores of a block
  with all cells come to it.
"""

from __future__ import annotations

from fractions import Fraction

from pilotfish.hooks.types import EngineOptions, EngineSetting, Footprint, TargetPin
from pilotfish.manifests.gguf import GGUFMetadata, read_metadata
from pilotfish.plugins._cells.cell_memory import MARKS, window_cells
from pilotfish.plugins._cells.memory_layers import memory_layers, number
from pilotfish.plugins._cells.setting import CELL_BLOCK

BYTES_PER_VALUE = {
    "f32": Fraction(4), "f16": Fraction(2), "bf16": Fraction(2), "q8_0": Fraction(34, 32), "q4_0": Fraction(18, 32),
    "q4_1": Fraction(20, 32), "iq4_nl": Fraction(18, 32), "q5_0": Fraction(22, 32), "q5_1": Fraction(24, 32),
}  # fmt: skip
_FLOAT = 4  # bytes
_ACTIVATIONS = 4  # of each kind alive at once while a layer is computed


def footprint_in(
    pin: TargetPin,
    setting: EngineSetting,
    options: EngineOptions,
    device: str,
    *,
    rows: int = 1,
    contexts: int = 1,
    windows: bool = False,
    snapshots: int = 0,
) -> Footprint:
    """Bytes on `device` for the weights, and for `options.slots` sequences of `options.n_ctx` tokens each.

    They share `contexts` contexts, of which each has working buffers and `rows` rows of logits. With `windows` the
    engine keeps no more cells of windows than it needs; of running states there are `snapshots` more. Raises
    BrokenModel.
    """
    metadata = read_metadata(pin.path, pin.name)
    layers = memory_layers(pin)
    cells = -(-options.n_ctx // CELL_BLOCK) * CELL_BLOCK
    ring = window_cells(layers.window, options.batch_size, cells) if windows else cells
    head = _head_bytes(metadata, setting)
    cache = (
        int(head * (layers.heads * cells + layers.window_heads * ring)) + (1 + max(1, snapshots) + MARKS) * layers.state
    )
    work = _working_bytes(metadata, options.batch_size, cells) + _FLOAT * rows * pin.tokenizer.n_vocab
    if setting.flash_attention is False:
        work += _FLOAT * options.batch_size * cells * number(metadata, "attention.head_count", 1)
    return Footprint(sum(weight.size for weight in pin.weights), options.slots * cache + contexts * work, device)


def _head_bytes(metadata: GGUFMetadata, setting: EngineSetting) -> Fraction:
    """Of a key and a value of one head."""
    size = _head_size(metadata)
    key = number(metadata, "attention.key_length", size) * _bytes_per_value(setting.cache_type_k)
    return key + number(metadata, "attention.value_length", size) * _bytes_per_value(setting.cache_type_v)


def _working_bytes(metadata: GGUFMetadata, block: int, cells: int) -> int:
    """Activations of one block, and its attention mask in f16; a model with sliding windows has one for them too."""
    heads = number(metadata, "attention.head_count", 1)
    size = number(metadata, "attention.key_length", _head_size(metadata))
    width = max(metadata.embedding_length, heads * size)
    hidden = number(metadata, "feed_forward_length")
    masks = 2 if number(metadata, "attention.sliding_window") else 1
    return block * (_FLOAT * _ACTIVATIONS * (width + hidden) + 2 * cells * masks)


def _head_size(metadata: GGUFMetadata) -> int:
    return metadata.embedding_length // max(1, number(metadata, "attention.head_count", 1))


def _bytes_per_value(cache_type: str) -> Fraction:
    return BYTES_PER_VALUE.get(cache_type.lower(), Fraction(4))
