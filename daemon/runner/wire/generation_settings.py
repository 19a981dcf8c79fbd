"""A request's settings as llama-server reports them back (`generation_settings`, `/props`, `/slots`)."""

from __future__ import annotations

import math
from ctypes import c_float
from typing import Any

from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.runner.wire.completion_request import CompletionRequest
from pilotfish.daemon.runner.wire.sampling_options import SAMPLERS
from pilotfish.hooks.types import SamplingParams


def settings_json(request: CompletionRequest, generation: GenerationRequest) -> dict[str, Any]:
    """`generation_settings`: what was in force, the seed included."""
    return sampling_json(generation.sampling) | {
        "dry_sequence_breakers": ["\n", ":", '"', "*"],
        "stop": list(generation.stop),
        "max_tokens": generation.n_predict,
        "n_predict": generation.n_predict,
        "n_keep": request.n_keep,
        "n_discard": request.n_discard,
        "stream": request.stream,
        "logit_bias": [
            {"bias": bias if math.isfinite(bias) else None, "token": token}
            for token, bias in generation.sampling.logit_bias
        ],
        "grammar": generation.sampling.grammar,
        "grammar_lazy": False,
        "grammar_triggers": [],
        "preserved_tokens": sorted(generation.preserved),
        "timings_per_token": request.timings_per_token,
    }


def sampling_json(sampling: SamplingParams) -> dict[str, Any]:
    """The part of the settings that `/props` and `/slots` show too. Reals are what a 32-bit float makes of them."""
    reals = {
        "temperature": sampling.temperature,
        "dynatemp_range": 0.0,
        "dynatemp_exponent": 1.0,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "top_n_sigma": -1.0,
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "typical_p": sampling.typical_p,
        "repeat_penalty": sampling.repeat_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "dry_multiplier": 0.0,
        "dry_base": 1.75,
        "mirostat_tau": 5.0,
        "mirostat_eta": 0.1,
        "adaptive_target": -1.0,
        "adaptive_decay": 0.9,
    }
    return {name: c_float(value).value for name, value in reals.items()} | {
        "seed": sampling.seed,
        "top_k": sampling.top_k,
        "repeat_last_n": sampling.repeat_last_n,
        "dry_allowed_length": 2,
        "dry_penalty_last_n": 64,
        "mirostat": 0,
        "max_tokens": -1,
        "n_predict": -1,
        "n_keep": 0,
        "n_discard": 0,
        "ignore_eos": sampling.ignore_eos,
        "stream": False,
        "n_probs": sampling.n_probs,
        "min_keep": sampling.min_keep,
        "chat_format": "Content-only",
        "reasoning_format": "none",
        "reasoning_in_content": False,
        "generation_prompt": "",
        "samplers": list(SAMPLERS),
        "speculative.types": "none",
        "timings_per_token": False,
        "post_sampling_probs": False,
        "backend_sampling": False,
        "lora": [],
    }
