"""The functions of ik_llama.cpp that the package leaves undescribed. Undescribed, ctypes would cut 64-bit handles."""

from __future__ import annotations

import ctypes
from typing import Any

_POINTER, _INT, _BOOL, _TEXT, _SIZE = ctypes.c_void_p, ctypes.c_int32, ctypes.c_bool, ctypes.c_char_p, ctypes.c_size_t
_FLAGS = ctypes.c_uint32
_TOKENS = ctypes.POINTER(ctypes.c_int32)

LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "llama_log_set": (None, [LogCallback, _POINTER]),
    "llama_print_system_info": (_TEXT, []),
    "llama_supports_gpu_offload": (_BOOL, []),
    "ggml_backend_reg_get_count": (_SIZE, []),
    "ggml_backend_reg_get_name": (_TEXT, [_SIZE]),
    "llama_synchronize": (None, [_POINTER]),
    "llama_n_ctx": (ctypes.c_uint32, [_POINTER]),
    "llama_n_ctx_train": (_INT, [_POINTER]),
    "llama_model_has_encoder": (_BOOL, [_POINTER]),
    "llama_model_has_decoder": (_BOOL, [_POINTER]),
    "llama_model_has_recurrent": (_BOOL, [_POINTER]),
    "llama_vocab_bos": (_INT, [_POINTER]),
    "llama_vocab_is_eog": (_BOOL, [_POINTER, _INT]),
    "llama_vocab_tokenize": (_INT, [_POINTER, _TEXT, _INT, _TOKENS, _INT, _BOOL, _BOOL]),
    "llama_token_to_piece_vocab": (_INT, [_POINTER, _INT, _TEXT, _INT, _INT, _BOOL]),
    "llama_kv_cache_seq_rm": (_BOOL, [_POINTER, _INT, _INT, _INT]),
    "llama_model_meta_val_str": (_INT, [_POINTER, _TEXT, _TEXT, _SIZE]),
    "llama_rope_type": (_INT, [_POINTER]),
    "llama_kv_cache_seq_add": (None, [_POINTER, _INT, _INT, _INT, _INT]),
    "llama_kv_cache_update": (_INT, [_POINTER]),
    "llama_state_seq_get_size": (_SIZE, [_POINTER, _INT, _FLAGS]),
    "llama_state_seq_get_data": (_SIZE, [_POINTER, _POINTER, _SIZE, _INT, _FLAGS]),
    "llama_state_seq_set_data": (_SIZE, [_POINTER, _POINTER, _SIZE, _INT, _FLAGS]),
    "llama_sampler_init_grammar": (_POINTER, [_POINTER, _TEXT, _TEXT]),
    "llama_grammar_sample": (None, [_POINTER, _POINTER, _POINTER]),
    "llama_grammar_accept_token": (None, [_POINTER, _POINTER, _INT]),
    "llama_grammar_free": (None, [_POINTER]),
}


def describe(library: ctypes.CDLL) -> ctypes.CDLL:
    """`library` with these functions described. Raises AttributeError for one that it lacks."""
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
