"""The pieces that architectures are made of: groups of tensors, and the keys that go with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilotfish.daemon.lab.tiny_models.architecture import (
    EMBD,
    EXPERTS,
    EXPERTS_USED,
    HEAD,
    HEADS,
    HEADS_KV,
    HIDDEN,
    KV,
    VOCAB,
    Q,
    Tensors,
    Value,
)

KEYS: Mapping[str, Value] = {
    "context_length": 8192,
    "embedding_length": EMBD,
    "feed_forward_length": HIDDEN,
    "attention.head_count": HEADS,
    "attention.head_count_kv": HEADS_KV,
    "attention.key_length": HEAD,
    "attention.value_length": HEAD,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.dimension_count": HEAD,
    "rope.freq_base": 10000.0,
}
LAYER_NORM: Mapping[str, Value] = {"attention.layer_norm_epsilon": 1e-5}
SPARSE: Mapping[str, Value] = {
    "expert_count": EXPERTS,
    "expert_used_count": EXPERTS_USED,
    "expert_feed_forward_length": HIDDEN,
}

EMBEDDING: Tensors = {"TOKEN_EMBD": (VOCAB, EMBD), "OUTPUT_NORM": (EMBD,)}
WHOLE: Tensors = {**EMBEDDING, "OUTPUT": (VOCAB, EMBD)}

ATTENTION: Tensors = {
    "ATTN_NORM": (EMBD,),
    "ATTN_Q": (Q, EMBD),
    "ATTN_K": (KV, EMBD),
    "ATTN_V": (KV, EMBD),
    "ATTN_OUT": (EMBD, Q),
}
BIASES: Tensors = {"ATTN_Q.bias": (Q,), "ATTN_K.bias": (KV,), "ATTN_V.bias": (KV,)}
HEAD_NORMS: Tensors = {"ATTN_Q_NORM": (HEAD,), "ATTN_K_NORM": (HEAD,)}
POST_NORMS: Tensors = {"ATTN_POST_NORM": (EMBD,), "FFN_POST_NORM": (EMBD,)}

UP_DOWN: Tensors = {"FFN_UP": (HIDDEN, EMBD), "FFN_DOWN": (EMBD, HIDDEN)}
DENSE: Tensors = {"FFN_NORM": (EMBD,), "FFN_GATE": (HIDDEN, EMBD), **UP_DOWN}
GATED_UP: Tensors = {"FFN_NORM": (EMBD,), "FFN_UP": (2 * HIDDEN, EMBD), "FFN_DOWN": (EMBD, HIDDEN)}
ROUTED: Tensors = {
    "FFN_GATE_INP": (EXPERTS, EMBD),
    "FFN_GATE_EXP": (EXPERTS, HIDDEN, EMBD),
    "FFN_UP_EXP": (EXPERTS, HIDDEN, EMBD),
    "FFN_DOWN_EXP": (EXPERTS, EMBD, HIDDEN),
}
MIXTURE: Tensors = {"FFN_NORM": (EMBD,), **ROUTED}
SHARED: Tensors = {
    "FFN_GATE_SHEXP": (HIDDEN, EMBD),
    "FFN_UP_SHEXP": (HIDDEN, EMBD),
    "FFN_DOWN_SHEXP": (EMBD, HIDDEN),
}
SHARED_GATE: Tensors = {"FFN_GATE_INP_SHEXP": (EMBD,)}
EXPERT_BIAS: Tensors = {"FFN_EXP_PROBS_B.bias": (EXPERTS,)}

STATE, INNER, RANK, GROUPS, TAPS = 128, 2 * EMBD, 4, 2, 4  # of the running states


def state_keys(inner: int, rank: int = RANK, groups: int = GROUPS) -> dict[str, Any]:
    """What every architecture with a state space says of it."""
    return {
        "ssm.conv_kernel": TAPS,
        "ssm.inner_size": inner,
        "ssm.state_size": STATE,
        "ssm.time_step_rank": rank,
        "ssm.group_count": groups,
    }


_CONVOLVED = INNER + 2 * GROUPS * STATE
MAMBA2: Tensors = {
    "ATTN_NORM": (EMBD,),
    "SSM_IN": (INNER + _CONVOLVED + RANK, EMBD),
    "SSM_CONV1D": (_CONVOLVED, TAPS),
    "SSM_CONV1D.bias": (_CONVOLVED,),
    "SSM_DT.bias": (RANK,),
    "SSM_A.": (RANK, 1),
    "SSM_D.": (RANK, 1),
    "SSM_NORM": (GROUPS, INNER // GROUPS),
    "SSM_OUT": (EMBD, INNER),
}

_KEYS_WIDE, _VALUES_WIDE = GROUPS * STATE, RANK * STATE
DELTA_INNER = _VALUES_WIDE
_DELTA: Tensors = {  # the gated delta rule
    "ATTN_NORM": (EMBD,),
    "ATTN_POST_NORM": (EMBD,),
    "ATTN_QKV": (2 * _KEYS_WIDE + _VALUES_WIDE, EMBD),
    "ATTN_GATE": (_VALUES_WIDE, EMBD),
    "SSM_CONV1D": (2 * _KEYS_WIDE + _VALUES_WIDE, TAPS),
    "SSM_DT.bias": (RANK,),
    "SSM_A.": (RANK,),
    "SSM_NORM": (STATE,),
    "SSM_OUT": (EMBD, _VALUES_WIDE),
}
DELTA: Tensors = {**_DELTA, "SSM_ALPHA": (RANK, EMBD), "SSM_BETA": (RANK, EMBD)}
DELTA_JOINT: Tensors = {**_DELTA, "SSM_BETA_ALPHA": (2 * RANK, EMBD)}
GATED_ATTENTION: Tensors = {**ATTENTION, "ATTN_Q": (2 * Q, EMBD), "ATTN_POST_NORM": (EMBD,), **HEAD_NORMS}

SHORT_CONVOLUTION: Tensors = {
    "ATTN_NORM": (EMBD,),
    "SHORTCONV_CONV": (EMBD, 3),
    "SHORTCONV_INPROJ": (3 * EMBD, EMBD),
    "SHORTCONV_OUTPROJ": (EMBD, EMBD),
}


def without(tensors: Tensors, *names: str) -> Tensors:
    """`tensors` without those of these names."""
    return {name: shape for name, shape in tensors.items() if name not in names}
