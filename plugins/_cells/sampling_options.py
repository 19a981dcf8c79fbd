"""What a request's sampling options mean, whichever engine's rows they are applied to."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.types import SamplingParams


def is_greedy(params: SamplingParams) -> bool:
    """Whether the whole chain comes down to an argmax: below temperature 0 only `typical` may drop the maximum."""
    return params.temperature <= 0 and params.typical_p >= 1


def penalizes(params: SamplingParams) -> bool:
    """Whether the sampler looks back."""
    neutral = params.repeat_penalty == 1 and params.frequency_penalty == 0 and params.presence_penalty == 0
    return params.repeat_last_n > 0 and not neutral


def validate(params: SamplingParams) -> None:
    """Raise RequestError for options without a meaning, naming the option."""
    if not (math.isfinite(params.repeat_penalty) and params.repeat_penalty > 0):
        raise RequestError(f"repeat_penalty: must be finite and greater than 0, got {params.repeat_penalty}")
    for name in ("frequency_penalty", "presence_penalty"):
        if not math.isfinite(getattr(params, name)):
            raise RequestError(f"{name}: must be finite, got {getattr(params, name)}")
    for name in ("temperature", "top_p", "min_p", "typical_p"):
        if math.isnan(getattr(params, name)):
            raise RequestError(f"{name}: must be a number, got nan")


def biases(
    params: SamplingParams, n_vocab: int, eog: frozenset[int], suppressed: Sequence[int] = ()
) -> list[tuple[int, float]]:
    """The request's biases (ids outside the vocabulary are ignored, as stock does), bans, and suppressed ids."""
    pairs = [(token, bias) for token, bias in params.logit_bias if 0 <= token < n_vocab]
    banned = (*sorted(eog if params.ignore_eos else ()), *suppressed)
    return pairs + [(token, -math.inf) for token in banned]


def penalty_window(params: SamplingParams, cells: int) -> int:
    """Tokens the penalties look back; a window beyond the context holds no more tokens."""
    return max(0, min(params.repeat_last_n, cells))
