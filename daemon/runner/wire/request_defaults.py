"""What holds for a request that does not say otherwise: what the launch said."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestDefaults:
    """Counts are tokens; `n_predict` -1 is no limit. `keep` of a prompt's tokens stay in a full context, -1 all."""

    n_predict: int = -1
    context_shift: bool = False
    keep: int = 0
    cache_prompt: bool = True
    parallel: int = 1  # slots that were asked for: how many answers one request may want, as in stock
