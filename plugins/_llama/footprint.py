"""How much memory a GGUF will take under libllama, from its header alone.

Compared with the buffers that libllama reports when it loads SmolLM2 (bf16/f16 caches, flash attention):

- weights: the file's size. Of a repacked tensor there is a second copy, but nobody reads the mapped one again.
- cache: layers x key-value heads x (key + value size) x cells, in the cache's types; equal to the byte. A sliding
  window's layers are counted as if they saw everything, which they do where `swa_full` is set.
- working buffers: 16.5 MiB and the mask for blocks of 512 tokens, where libllama takes 13.5 MiB and the mask: an upper
  bound on CPU, in proportion to the block's length as libllama's is.
"""

from __future__ import annotations

from fractions import Fraction

from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.types import EngineOptions, Footprint, TargetPin
from pilotfish.plugins._llama.devices import device_for
from pilotfish.plugins._llama.gguf import GgufHeader, open_gguf
from pilotfish.plugins._llama.model import CELL_BLOCK, Setting, setting_for

BYTES_PER_VALUE = {
    "f32": Fraction(4), "f16": Fraction(2), "bf16": Fraction(2), "q8_0": Fraction(34, 32), "q4_0": Fraction(18, 32),
    "q4_1": Fraction(20, 32), "iq4_nl": Fraction(18, 32), "q5_0": Fraction(22, 32), "q5_1": Fraction(24, 32),
}  # fmt: skip
_FLOAT = 4  # bytes
_ACTIVATIONS = 4  # of each kind alive at once while a layer is computed


def footprint(pin: TargetPin, options: EngineOptions) -> Footprint:
    """Bytes for the weights, and for one sequence of `options.n_ctx` tokens. Raises BrokenModel."""
    setting = setting_for(None, options)
    with open_gguf(pin.path) as header:
        if header is None:
            raise BrokenModel(f"{pin.name}: {pin.path} is no GGUF that libllama can read; pull {pin.name} again")
        architecture = header.text("general.architecture")
        cells = -(-options.n_ctx // CELL_BLOCK) * CELL_BLOCK
        cache = _cache_bytes(header, architecture, setting, cells)
        work = _working_bytes(header, architecture, options.batch_size, cells) + _FLOAT * pin.tokenizer.n_vocab
    return Footprint(sum(weight.size for weight in pin.weights), cache + work, device_for(options.gpu_layers))


def _cache_bytes(header: GgufHeader, architecture: str, setting: Setting, cells: int) -> int:
    attention = f"{architecture}.attention"
    heads = header.number(f"{attention}.head_count", 1)
    kv_heads = header.numbers(f"{attention}.head_count_kv") or (heads,)  # one for all layers, or one for each
    size = _head_size(header, architecture)
    key = header.number(f"{attention}.key_length", size) * _bytes_per_value(setting.cache_type_k)
    value = header.number(f"{attention}.value_length", size) * _bytes_per_value(setting.cache_type_v)
    layers = header.number(f"{architecture}.block_count")
    total_heads = sum(kv_heads) if len(kv_heads) > 1 else kv_heads[0] * layers
    return int(total_heads * (key + value) * cells)


def _working_bytes(header: GgufHeader, architecture: str, block: int, cells: int) -> int:
    """Activations of one block, and its attention mask in f16; a model with sliding windows has one for them too."""
    heads = header.number(f"{architecture}.attention.head_count", 1)
    size = header.number(f"{architecture}.attention.key_length", _head_size(header, architecture))
    width = max(header.number(f"{architecture}.embedding_length"), heads * size)
    hidden = header.number(f"{architecture}.feed_forward_length")
    masks = 2 if header.number(f"{architecture}.attention.sliding_window") else 1
    return block * (_FLOAT * _ACTIVATIONS * (width + hidden) + 2 * cells * masks)


def _head_size(header: GgufHeader, architecture: str) -> int:
    heads = header.number(f"{architecture}.attention.head_count", 1)
    return header.number(f"{architecture}.embedding_length") // max(1, heads)


def _bytes_per_value(cache_type: str) -> Fraction:
    return BYTES_PER_VALUE.get(cache_type.lower(), Fraction(4))
