"""Architectures that keep a running state, alone or beside attention."""

from __future__ import annotations

from pilotfish.daemon.lab.tiny_models.architecture import EMBD, HEADS_KV, HIDDEN, VOCAB, Architecture, Tensors, Value
from pilotfish.daemon.lab.tiny_models.parts import (
    ATTENTION,
    DELTA,
    DELTA_INNER,
    DELTA_JOINT,
    DENSE,
    EMBEDDING,
    EXPERT_BIAS,
    GATED_ATTENTION,
    HEAD_NORMS,
    INNER,
    KEYS,
    LAYER_NORM,
    MAMBA2,
    MIXTURE,
    ROUTED,
    SHARED,
    SHARED_GATE,
    SHORT_CONVOLUTION,
    SPARSE,
    UP_DOWN,
    state_keys,
    without,
)

_INTERVAL = 4  # every fourth layer attends
_MROPE: dict[str, Value] = {"rope.dimension_count": 32, "rope.dimension_sections": [6, 5, 5, 0]}
_NEXT = {**KEYS, **state_keys(DELTA_INNER), "full_attention_interval": _INTERVAL}
_FFN = without(DENSE, "FFN_NORM")  # the norm before it is the one after attention
_EXPERTS = {**ROUTED, **SHARED, **SHARED_GATE}
_SHARED_SIZE = {"expert_shared_feed_forward_length": HIDDEN}
_SCALES = {"logit_scale": 1.0, "residual_scale": 1.0, "embedding_scale": 1.0, "attention.scale": 0.125}
_LFM2: dict[str, tuple[int, ...]] = {"TOKEN_EMBD": (VOCAB, EMBD), "TOKEN_EMBD_NORM": (EMBD,)}


def _attends(*layers: bool) -> dict[str, Value]:
    """Heads of keys and values by layer: none in those that keep a state."""
    return {"attention.head_count_kv": [HEADS_KV if attends else 0 for attends in layers]}


def _blocks(state: Tensors, attention: Tensors) -> list[Tensors]:
    return [*[state] * (_INTERVAL - 1), attention]


_NO_ATTENTION = {key: value for key, value in KEYS.items() if not key.startswith(("attention.h", "rope."))}
_NEMOTRON = {**KEYS, **LAYER_NORM, **state_keys(INNER)}
_NEMOTRON_ORDER = {
    "attention.head_count_kv": [0, HEADS_KV, 0, 0],
    "feed_forward_length": [0, 0, HIDDEN, 0],
}
_SQUARED_EXPERTS = without({**ROUTED, **SHARED, **EXPERT_BIAS}, "FFN_GATE_EXP", "FFN_GATE_SHEXP")

STATEFUL_ARCHITECTURES = (
    Architecture(
        "qwen35", "qwen3.5", _blocks({**DELTA, **_FFN}, {**GATED_ATTENTION, **_FFN}), {**_NEXT, **_MROPE}, EMBEDDING
    ),
    Architecture(
        "qwen35moe",
        "qwen3.5:35b",
        _blocks({**DELTA, **_EXPERTS}, {**GATED_ATTENTION, **_EXPERTS}),
        {**_NEXT, **_MROPE, **SPARSE, **_SHARED_SIZE},
        EMBEDDING,
    ),
    Architecture(
        "qwen3next",
        "qwen3-next, qwen3-coder-next",
        _blocks({**DELTA_JOINT, **_EXPERTS}, {**GATED_ATTENTION, **_EXPERTS}),
        {**_NEXT, **SPARSE, **_SHARED_SIZE},
        EMBEDDING,
    ),
    Architecture(
        "granitehybrid",
        "granite4",
        [{**MAMBA2, **DENSE}] * 2 + [{**ATTENTION, **DENSE}, {**MAMBA2, **DENSE}],
        {**KEYS, **state_keys(INNER), **_SCALES, **_attends(False, False, True, False)},
        EMBEDDING,
    ),
    Architecture(
        "granitehybrid (experts)",
        "granite4:small-h",
        [{**MAMBA2, **MIXTURE, **SHARED}] * 2 + [{**ATTENTION, **MIXTURE, **SHARED}],
        {**KEYS, **SPARSE, **_SHARED_SIZE, **state_keys(INNER), **_SCALES, **_attends(False, False, True)},
        EMBEDDING,
    ),
    Architecture(
        "nemotron_h",
        "models from hf.co",
        [MAMBA2, ATTENTION, {"ATTN_NORM": (EMBD,), **UP_DOWN}, MAMBA2],
        {**_NEMOTRON, **_NEMOTRON_ORDER},
        EMBEDDING,
    ),
    Architecture(
        "nemotron_h_moe",
        "nemotron-3-nano",
        [MAMBA2, ATTENTION, {"ATTN_NORM": (EMBD,), **_SQUARED_EXPERTS}, MAMBA2],
        {
            **_NEMOTRON,
            **SPARSE,
            **_SHARED_SIZE,
            **_NEMOTRON_ORDER,
            "expert_shared_count": 1,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.0,
        },
        EMBEDDING,
    ),
    Architecture(
        "lfm2",
        "lfm2, lfm2.5-thinking",
        [{**SHORT_CONVOLUTION, **DENSE}] * 2 + [{**ATTENTION, **HEAD_NORMS, **DENSE}, {**SHORT_CONVOLUTION, **DENSE}],
        {**KEYS, "shortconv.l_cache": 3, **_attends(False, False, True, False)},
        _LFM2,
    ),
    Architecture(
        "lfm2moe",
        "lfm2:24b",
        [
            {**SHORT_CONVOLUTION, **DENSE},
            {**SHORT_CONVOLUTION, **MIXTURE, **EXPERT_BIAS},
            {**ATTENTION, **HEAD_NORMS, **MIXTURE, **EXPERT_BIAS},
        ],
        {
            **KEYS,
            **SPARSE,
            "shortconv.l_cache": 3,
            "leading_dense_block_count": 1,
            "expert_gating_func": 2,
            **_attends(False, False, True),
        },
        _LFM2,
    ),
    Architecture("mamba2", "models from hf.co", [MAMBA2] * 3, {**_NO_ATTENTION, **state_keys(INNER)}, EMBEDDING),
    Architecture(
        "falcon-h1",
        "models from hf.co",
        [{**MAMBA2, **ATTENTION, **_FFN, "FFN_NORM.": (EMBD,)}] * 3,
        {**KEYS, **state_keys(INNER)},
        EMBEDDING,
    ),
)
