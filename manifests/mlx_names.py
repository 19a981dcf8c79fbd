"""mlx-lm's names for the tensors of a GGUF: those of llama, and of architectures that are built like it."""

from __future__ import annotations

import re

_MODULES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TENSOR = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias|scales|biases)")


def mlx_name(tensor: str) -> str:
    """`blk.0.attn_q.weight` is `model.layers.0.self_attn.q_proj.weight`; empty for a tensor that has no place there."""
    found = _TENSOR.fullmatch(tensor)
    if not found or found[2] not in _MODULES:
        return ""
    layer, module, part = found.groups()
    return f"model.layers.{layer}.{_MODULES[module]}.{part}" if layer else f"{_MODULES[module]}.{part}"
