"""What the libllama that llama-cpp-python's structures were made for says of itself (see `abi`).

Any default that another build returns differently is a sign of another layout. A test holds this against the package's
own library.
"""

from __future__ import annotations

from typing import Any

PACKAGE = "llama-cpp-python"
MADE_FOR = "0.3.36"

DESCRIBED: dict[str, Any] = {
    "version": "0.5.0-dev",
    "llama_model_default_params": {
        "devices": False, "tensor_buft_overrides": False, "n_gpu_layers": -1, "split_mode": 1, "load_mode": -1,
        "lazy_mode": 1, "main_gpu": 0, "tensor_split": False, "progress_callback": False,
        "progress_callback_user_data": False, "kv_overrides": False, "vocab_only": False, "check_tensors": False,
        "use_extra_bufts": True, "no_host": False, "no_alloc": False, "load_mtp": False,
    },
    "llama_model_default_params fits": True,
    "llama_context_default_params": {
        "n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "n_rs_seq": 0, "n_outputs_max": 0,
        "n_outputs_max_per_seq": 1, "n_threads": 4, "n_threads_batch": 4, "ctx_type": 0, "rope_scaling_type": -1,
        "pooling_type": -1, "attention_type": -1, "flash_attn_type": -1, "rope_freq_base": 0.0,
        "rope_freq_scale": 0.0, "yarn_ext_factor": -1.0, "yarn_attn_factor": -1.0, "yarn_beta_fast": -1.0,
        "yarn_beta_slow": -1.0, "yarn_orig_ctx": 0, "defrag_thold": -1.0, "cb_eval": False,
        "cb_eval_user_data": False, "type_k": 1, "type_v": 1, "abort_callback": False, "abort_callback_data": False,
        "embeddings": False, "offload_kqv": True, "no_perf": True, "op_offload": True, "swa_full": True,
        "kv_unified": False, "samplers": False, "n_samplers": 0, "ctx_other": False,
    },
    "llama_context_default_params fits": True,
    "llama_sampler_chain_default_params": {
        "no_perf": True,
    },
    "llama_sampler_chain_default_params fits": True,
}  # fmt: skip
