"""Architectures in which some layers see only the last tokens: a sliding window, or chunks."""

from __future__ import annotations

from pilotfish.daemon.lab.tiny_models.architecture import (
    EMBD,
    EXPERTS,
    HEAD,
    HEADS,
    HIDDEN,
    KV,
    VOCAB,
    WINDOW,
    Architecture,
    Q,
    Words,
)
from pilotfish.daemon.lab.tiny_models.parts import (
    ATTENTION,
    BIASES,
    DENSE,
    EMBEDDING,
    HEAD_NORMS,
    KEYS,
    LAYER_NORM,
    POST_NORMS,
    ROUTED,
    SHARED,
    SPARSE,
    WHOLE,
    without,
)

_WINDOW = {"attention.sliding_window": WINDOW}
_GEMMA2 = {**ATTENTION, **DENSE, **POST_NORMS}
_GEMMA3 = {**_GEMMA2, **HEAD_NORMS}
_SLICE, _STREAMS, _LAUREL = 256, 4, 64  # of Gemma 3n: fixed in libllama
_SLICED = {"PER_LAYER_INP_GATE": (_SLICE, EMBD), "PER_LAYER_PROJ": (EMBD, _SLICE), "PER_LAYER_POST_NORM": (EMBD,)}
_GEMMA3N = {
    **_GEMMA3,
    **_SLICED,
    "ALTUP_CORRECT_COEF": (_STREAMS, _STREAMS),
    "ALTUP_CORRECT_SCALE": (EMBD,),
    "ALTUP_PREDICT_COEF": (_STREAMS * _STREAMS, _STREAMS),
    "ALTUP_ROUTER": (_STREAMS, EMBD),
    "ALTUP_ROUTER_NORM": (EMBD,),
    "LAUREL_L": (_LAUREL, EMBD),
    "LAUREL_R": (EMBD, _LAUREL),
    "LAUREL_POST_NORM": (EMBD,),
}
_GPT_OSS = {
    **ATTENTION,
    **BIASES,
    "ATTN_OUT.bias": (EMBD,),
    "ATTN_POST_NORM": (EMBD,),
    "ATTN_SINKS": (HEADS,),
    **ROUTED,
    "FFN_GATE_INP.bias": (EXPERTS,),
    "FFN_GATE_EXP.bias": (EXPERTS, HIDDEN),
    "FFN_UP_EXP.bias": (EXPERTS, HIDDEN),
    "FFN_DOWN_EXP.bias": (EXPERTS, EMBD),
}
_LLAMA4 = [{**ATTENTION, **DENSE}, {**ATTENTION, "FFN_NORM": (EMBD,), **ROUTED, **SHARED}] * 2


def _sliced(layers: int) -> dict[str, tuple[int, ...]]:
    """What feeds every layer its own slice of a second embedding."""
    return {
        "PER_LAYER_TOKEN_EMBD": (VOCAB, layers * _SLICE),
        "PER_LAYER_MODEL_PROJ": (layers * _SLICE, EMBD),
        "PER_LAYER_PROJ_NORM": (_SLICE,),
    }


_N_GEMMA3N, _N_GEMMA4 = 22, 6
_STREAM_MAPS = {
    "ALTUP_PROJ": (_STREAMS - 1, EMBD, EMBD),
    "ALTUP_UNEMBD_PROJ": (_STREAMS - 1, EMBD, EMBD),
}

WINDOWED_ARCHITECTURES = (
    Architecture(
        "gemma2",
        "gemma2",
        [_GEMMA2] * 4,
        {**KEYS, **_WINDOW, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        EMBEDDING,
        Words.GEMMA,
        embedding=0.017,
        window=WINDOW,
    ),
    Architecture(
        "gemma3",
        "gemma3",
        [_GEMMA3] * 7,
        {**KEYS, **_WINDOW, "rope.freq_base": 1000000.0},
        EMBEDDING,
        Words.GEMMA,
        embedding=0.01,
        window=WINDOW,
    ),
    Architecture(
        "gemma3n",
        "gemma3n",
        [_GEMMA3N] * _N_GEMMA3N,
        {**KEYS, **_WINDOW},
        {**EMBEDDING, **_sliced(_N_GEMMA3N), **_STREAM_MAPS},
        entries=4096,
        embedding=0.017,
        window=WINDOW,
        note="the first 4,096 tokens of the vocabulary: every layer has an embedding of its own",
    ),
    Architecture(
        "gemma4",
        "gemma4",
        [{**_GEMMA3, **_SLICED, "LAYER_OUT_SCALE": (1,)}] * _N_GEMMA4,
        {
            **KEYS,
            **_WINDOW,
            "attention.key_length_swa": HEAD,
            "attention.value_length_swa": HEAD,
            "attention.sliding_window_pattern": [True, True, True, True, True, False],
            "attention.shared_kv_layers": 0,
            "embedding_length_per_layer_input": _SLICE,
            "final_logit_softcapping": 30.0,
            "rope.freq_base_swa": 10000.0,
        },
        {**EMBEDDING, **_sliced(_N_GEMMA4), "ROPE_FREQS": (HEAD // 2,)},
        embedding=0.017,
        window=WINDOW,
    ),
    Architecture(
        "gpt-oss",
        "gpt-oss (gptoss)",
        [_GPT_OSS] * 4,
        {**KEYS, **SPARSE, **_WINDOW},
        WHOLE,
        window=WINDOW,
        note="the library's files have MXFP4 experts",
    ),
    Architecture(
        "llama4",
        "llama4",
        _LLAMA4,
        {**KEYS, **SPARSE, "expert_used_count": 1, "interleave_moe_layer_step": 2},
        WHOLE,
        note="chunks of 8,192 tokens, fixed in libllama: not reached here",
    ),
    Architecture(
        "cohere2",
        "command-r7b",
        [without({**ATTENTION, **DENSE}, "FFN_NORM")] * 4,
        {**KEYS, **LAYER_NORM, **_WINDOW, "logit_scale": 1.0},
        EMBEDDING,
        window=WINDOW,
    ),
    Architecture(
        "olmo2 (windows)",
        "olmo-3 (olmo3)",
        [
            {
                **without({**ATTENTION, **DENSE}, "ATTN_NORM", "FFN_NORM"),
                **POST_NORMS,
                "ATTN_Q_NORM": (Q,),
                "ATTN_K_NORM": (KV,),
            }
        ]
        * 4,
        {**KEYS, **_WINDOW},
        WHOLE,
        window=WINDOW,
    ),
)
