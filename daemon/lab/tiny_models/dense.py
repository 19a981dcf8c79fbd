"""Architectures whose layers all attend to everything and compute everything."""

from __future__ import annotations

from pilotfish.daemon.lab.tiny_models.architecture import EMBD, HIDDEN, KV, VOCAB, Architecture, Q, Words
from pilotfish.daemon.lab.tiny_models.parts import (
    ATTENTION,
    BIASES,
    DENSE,
    EMBEDDING,
    GATED_UP,
    HEAD_NORMS,
    KEYS,
    LAYER_NORM,
    POST_NORMS,
    UP_DOWN,
    WHOLE,
    without,
)

_PLAIN = {**ATTENTION, **DENSE}
_WHOLE_B = {**WHOLE, "OUTPUT_NORM.bias": (EMBD,)}
_JOINT_QKV = {**without(ATTENTION, "ATTN_Q", "ATTN_K", "ATTN_V"), "ATTN_QKV": (Q + 2 * KV, EMBD)}
_UP_DOWN_B = {**UP_DOWN, "FFN_UP.bias": (HIDDEN,), "FFN_DOWN.bias": (EMBD,)}
_NORM_BIASES = {"ATTN_NORM.bias": (EMBD,), "FFN_NORM.bias": (EMBD,)}
_MROPE = {**KEYS, "rope.dimension_sections": [12, 10, 10, 0]}

DENSE_ARCHITECTURES = (
    Architecture("llama", "llama3.2, mistral, smollm2", [_PLAIN] * 3, KEYS, WHOLE),
    Architecture("mistral3", "ministral-3, mistral-small3.2", [_PLAIN] * 3, KEYS, WHOLE),
    Architecture("qwen2", "qwen2.5, qwen2.5-coder", [{**_PLAIN, **BIASES}] * 3, KEYS, WHOLE),
    Architecture("qwen2vl", "qwen2.5vl (qwen25vl)", [{**_PLAIN, **BIASES}] * 3, _MROPE, WHOLE, note="text only"),
    Architecture("qwen3", "qwen3", [{**_PLAIN, **HEAD_NORMS}] * 3, KEYS, EMBEDDING),
    Architecture("qwen3vl", "qwen3-vl", [{**_PLAIN, **HEAD_NORMS}] * 3, _MROPE, EMBEDDING, note="text only"),
    Architecture("phi3", "phi3, phi4", [{**_JOINT_QKV, **GATED_UP}] * 3, KEYS, WHOLE),
    Architecture(
        "phi2",
        "phi",
        [{**ATTENTION, **BIASES, "ATTN_NORM.bias": (EMBD,), "ATTN_OUT.bias": (EMBD,), **_UP_DOWN_B}] * 3,
        {**KEYS, **LAYER_NORM, "rope.dimension_count": 32},
        {**_WHOLE_B, "OUTPUT.bias": (VOCAB,)},
    ),
    Architecture("gemma", "gemma, codegemma", [_PLAIN] * 3, KEYS, EMBEDDING, Words.GEMMA, embedding=0.017),
    Architecture(
        "granite",
        "granite3.3, granite4:micro",
        [_PLAIN] * 3,
        {**KEYS, "logit_scale": 1.0, "residual_scale": 1.0, "embedding_scale": 1.0, "attention.scale": 0.125},
        EMBEDDING,
    ),
    Architecture(
        "olmo2",
        "olmo2",
        [{**without(_PLAIN, "ATTN_NORM", "FFN_NORM"), **POST_NORMS, "ATTN_Q_NORM": (Q,), "ATTN_K_NORM": (KV,)}] * 3,
        KEYS,
        WHOLE,
    ),
    Architecture("smollm3", "models from hf.co", [_PLAIN] * 4, KEYS, EMBEDDING),
    Architecture("glm4", "models from hf.co", [{**ATTENTION, **GATED_UP, **POST_NORMS}] * 3, KEYS, WHOLE),
    Architecture(
        "command-r",
        "command-r",
        [without(_PLAIN, "FFN_NORM")] * 3,
        {**KEYS, **LAYER_NORM, "logit_scale": 1.0},
        EMBEDDING,
    ),
    Architecture(
        "nemotron",
        "nemotron-mini",
        [{**ATTENTION, **_NORM_BIASES, "FFN_NORM": (EMBD,), **UP_DOWN}] * 3,
        {**KEYS, **LAYER_NORM},
        _WHOLE_B,
    ),
    Architecture(
        "starcoder2",
        "starcoder2",
        [{**ATTENTION, **BIASES, **_NORM_BIASES, "ATTN_OUT.bias": (EMBD,), "FFN_NORM": (EMBD,), **_UP_DOWN_B}] * 3,
        {**KEYS, **LAYER_NORM},
        _WHOLE_B,
    ),
    Architecture(
        "exaone4",
        "models from hf.co",
        [{**without(_PLAIN, "ATTN_NORM", "FFN_NORM"), **POST_NORMS, **HEAD_NORMS}] * 3,
        KEYS,
        WHOLE,
        embedding=1.0,  # nothing but the embeddings tells tokens apart before the first norm
    ),
    Architecture(
        "seed_oss", "models from hf.co", [{**without(_PLAIN, "FFN_NORM"), "ATTN_POST_NORM": (EMBD,)}] * 3, KEYS, WHOLE
    ),
)
