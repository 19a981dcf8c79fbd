"""MLX models of a few thousand random weights in a store: a vocabulary of bytes, and layers of every kind of cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilotfish.daemon.lab.mlx_models.random_mlx import LLAMA, random_weights
from pilotfish.daemon.lab.mlx_models.weight_layers import weight_layers
from pilotfish.hooks.types import TargetPin
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.pins import pin_model
from pilotfish.manifests.quantization import Quantization
from pilotfish.manifests.store import Store
from pilotfish.manifests.tensor_writer import add_json, write_tensor_model
from pilotfish.plugins._byte_letters import BYTE_OF

END, SPECIALS = 257, {"<s>": 256, "</s>": 257}
N_VOCAB = 320  # a few rows more than there are ids
WINDOW = 24

PLAIN = {
    **LLAMA,
    "vocab_size": N_VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "head_dim": 32,
    "eos_token_id": END,
}
WINDOWED = {**PLAIN, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW}
HYBRID = {
    "model_type": "lfm2", "vocab_size": N_VOCAB, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 2048, "norm_eps": 1e-5, "conv_bias": False, "conv_L_cache": 3,
    "block_dim": 64, "block_ff_dim": 96, "block_multiple_of": 32, "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": False, "full_attn_idxs": [1], "rope_theta": 10000.0, "eos_token_id": END,
}  # fmt: skip
RECURRENT = {
    "model_type": "mamba", "vocab_size": N_VOCAB, "hidden_size": 64, "intermediate_size": 96, "state_size": 8,
    "num_hidden_layers": 2, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "time_step_rank": 4,
    "eos_token_id": END,
}  # fmt: skip
WINDOWS_AND_STATES = {
    "model_type": "recurrent_gemma", "vocab_size": N_VOCAB, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "lru_width": 64, "conv1d_width": 4,
    "attention_bias": False, "attention_window_size": WINDOW, "block_types": ["recurrent", "recurrent", "attention"],
    "embeddings_scale_by_sqrt_dim": True, "logits_soft_cap": 30.0, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "eos_token_id": END,
}  # fmt: skip


def write_tiny(
    store: Store,
    name: str,
    config: Mapping[str, Any] = PLAIN,
    quantization: Quantization | None = None,
    said: Mapping[str, Any] | None = None,
) -> TargetPin:
    """Write a model with this config.json into a store; with `said`, what its config.json says differs from it."""
    layers = weight_layers(store.root, random_weights(config, 5), quantization)
    files = {
        "config.json": {**config, **(said or {})},
        "tokenizer.json": tokenizer_json(),
        "tokenizer_config.json": {"eos_token": "</s>"},
    }
    layers += [add_json(store.root, path, table) for path, table in files.items()]
    kind = quantization.ollama_type if quantization else ""
    write_tensor_model(store.root, ModelName.parse(name), layers, family=str(config["model_type"]), file_type=kind)
    return pin_model(store, name)


def tokenizer_json() -> dict[str, Any]:
    """Every byte is an id; two special tokens follow."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    whole = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": id, "content": text, **whole, "special": True} for text, id in SPECIALS.items()],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {"type": "BPE", "vocab": BYTE_OF | SPECIALS, "merges": []},
    }
