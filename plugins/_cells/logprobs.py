"""Log-probabilities as llama-server reports them: softmax of the raw row over the whole vocabulary."""

from __future__ import annotations

import numpy as np

from pilotfish.hooks.types import TokenLogprob
from pilotfish.plugins._cells.context import Logits
from pilotfish.plugins._cells.dialect import EngineTokenizer


def token_logprob(row: Logits, token: int, n: int, tokenizer: EngineTokenizer) -> TokenLogprob:
    """`token` and the `n` most probable tokens of `row` `(n_vocab,)`, in nats, most probable first."""
    best = _most_probable(row, n)
    peak = float(row.max())
    normalizer = peak + float(np.log(np.exp(row - peak, dtype=np.float64).sum()))

    def entry(id: int, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
        return TokenLogprob(id, float(row[id]) - normalizer, tokenizer.piece(id), top)

    return entry(token, tuple(entry(int(id)) for id in best))


def _most_probable(row: Logits, n: int) -> list[int]:
    n = max(0, min(n, len(row)))
    if n == 0:
        return []
    candidates = np.argpartition(row, len(row) - n)[len(row) - n :]
    return sorted(map(int, candidates), key=lambda id: (-float(row[id]), id))
