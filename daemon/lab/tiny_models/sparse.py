"""Architectures with a mixture of experts, all of whose layers attend to everything."""

from __future__ import annotations

from pilotfish.daemon.lab.tiny_models.architecture import EMBD, HEADS, HIDDEN, Architecture
from pilotfish.daemon.lab.tiny_models.parts import (
    ATTENTION,
    BIASES,
    DENSE,
    EMBEDDING,
    EXPERT_BIAS,
    HEAD_NORMS,
    KEYS,
    MIXTURE,
    ROUTED,
    SHARED,
    SHARED_GATE,
    SPARSE,
    WHOLE,
)

_ROPE, _LATENT, _NOPE, _VALUE = 64, 256, 256, 128  # of multi-head latent attention
_MLA = {
    "ATTN_NORM": (EMBD,),
    "ATTN_Q_A": (_LATENT, EMBD),
    "ATTN_Q_A_NORM": (_LATENT,),
    "ATTN_Q_B": (HEADS * (_NOPE + _ROPE), _LATENT),
    "ATTN_KV_A_MQA": (_LATENT + _ROPE, EMBD),
    "ATTN_KV_A_NORM": (_LATENT,),
    "ATTN_K_B": (HEADS, _LATENT, _NOPE),
    "ATTN_V_B": (HEADS, _VALUE, _LATENT),
    "ATTN_OUT": (EMBD, HEADS * _VALUE),
}
_MLA_KEYS = {
    **KEYS,
    "attention.head_count_kv": 1,
    "attention.key_length": _LATENT + _ROPE,
    "attention.value_length": _LATENT,
    "attention.key_length_mla": _NOPE + _ROPE,
    "attention.value_length_mla": _VALUE,
    "attention.q_lora_rank": _LATENT,
    "attention.kv_lora_rank": _LATENT,
    "rope.dimension_count": _ROPE,
}
_LED = {**SPARSE, "leading_dense_block_count": 1, "expert_shared_count": 1, "expert_gating_func": 2}
_LED_LAYERS = [{**_MLA, **DENSE}, *[{**_MLA, **MIXTURE, **SHARED, **EXPERT_BIAS}] * 2]
_GLM = {**ATTENTION, **HEAD_NORMS, "ATTN_POST_NORM": (EMBD,)}
_DENSE_HERE = {name: shape for name, shape in DENSE.items() if name != "FFN_NORM"}
_SCALES = {"logit_scale": 1.0, "residual_scale": 1.0, "embedding_scale": 1.0, "attention.scale": 0.125}
_SHARED_SIZE = {"expert_shared_feed_forward_length": HIDDEN}

SPARSE_ARCHITECTURES = (
    Architecture("llama (experts)", "mixtral", [{**ATTENTION, **MIXTURE}] * 3, {**KEYS, **SPARSE}, WHOLE),
    Architecture(
        "qwen2moe",
        "models from hf.co",
        [{**ATTENTION, **BIASES, **MIXTURE, **SHARED, **SHARED_GATE}] * 3,
        {**KEYS, **SPARSE, **_SHARED_SIZE},
        WHOLE,
    ),
    Architecture(
        "qwen3moe", "qwen3:30b, qwen3-coder", [{**ATTENTION, **HEAD_NORMS, **MIXTURE}] * 3, {**KEYS, **SPARSE}, WHOLE
    ),
    Architecture(
        "qwen3vlmoe",
        "qwen3-vl:30b",
        [{**ATTENTION, **HEAD_NORMS, **MIXTURE}] * 3,
        {**KEYS, **SPARSE, "rope.dimension_sections": [12, 10, 10, 0]},
        WHOLE,
        note="text only",
    ),
    Architecture(
        "granitemoe", "granite3.1-moe", [{**ATTENTION, **MIXTURE}] * 3, {**KEYS, **SPARSE, **_SCALES}, EMBEDDING
    ),
    Architecture(
        "olmoe",
        "models from hf.co",
        [
            {
                **ATTENTION,
                "ATTN_K": (EMBD, EMBD),
                "ATTN_V": (EMBD, EMBD),
                "ATTN_Q_NORM": (EMBD,),
                "ATTN_K_NORM": (EMBD,),
                **MIXTURE,
            }
        ]
        * 3,
        {**KEYS, **SPARSE, "attention.head_count_kv": HEADS},
        WHOLE,
    ),
    Architecture(
        "glm4moe",
        "models from hf.co",
        [{**_GLM, **_DENSE_HERE}, *[{**_GLM, **ROUTED, **SHARED, **EXPERT_BIAS}] * 2],
        {**KEYS, **_LED},
        WHOLE,
    ),
    Architecture(
        "deepseek2", "deepseek-v2, deepseek-v3, glm-4.7-flash (glm4moelite)", _LED_LAYERS, {**_MLA_KEYS, **_LED}, WHOLE
    ),
)
