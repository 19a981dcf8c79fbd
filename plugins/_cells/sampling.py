"""A request's sampler over an engine's rows, in numpy, for engines whose own samplers are no chain.

The order is llama-server's: logit bias, penalties, top-k, typical, top-p, min-p, temperature, distribution; every
option means what it means there, while the draws are our own. The random stream is a counter (PCG64, which can be
advanced), so that a rollback takes draws back without a snapshot: a draw costs one number, and a row that is never
picked costs none.

A plain greedy pick is one pass over the engine's own row. Otherwise the row is copied once if anything changes it, and
top-k looks at its highest places only (`shortlist`).

With a grammar it goes as in llama-server: draw first, keep the token if the grammar allows it, otherwise mask the row
by the grammar and draw again. Grammars are only ever handed tokens that they just allowed.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.types import SamplingParams
from pilotfish.plugins._cells.context import CellContext, Logits
from pilotfish.plugins._cells.grammar import grammar_of
from pilotfish.plugins._cells.sampling_options import biases, is_greedy, penalizes, penalty_window, validate

Ids = npt.NDArray[np.intp]
Weights = npt.NDArray[np.float64]

_CHUNK = 128  # places of a row that `shortlist` first takes together


class Grammar(Protocol):
    """Where a text stands in its grammar."""

    def allows(self, token: int) -> bool:
        """Whether `token` may come next."""
        ...

    def allowed(self) -> npt.NDArray[np.bool_]:
        """`(n_vocab,)`: which tokens may come next."""
        ...

    def accept(self, token: int) -> None:
        """Go on by `token`, which must be allowed."""
        ...

    def close(self) -> None:
        """Free it; a second call does nothing."""
        ...


class CellSampler:
    """A `Sampler`. `compile_grammar` reads GBNF; it raises RequestError for a grammar that cannot be read."""

    def __init__(
        self,
        context: CellContext,
        params: SamplingParams,
        prompt: Sequence[int],
        eog: frozenset[int],
        compile_grammar: Callable[[str], Grammar],
    ) -> None:
        validate(params)
        self._context, self._params, self._compile = context, params, compile_grammar
        self._greedy = is_greedy(params)
        self._bias: dict[int, float] = {}
        for token, bias in biases(params, context.n_vocab, eog):
            self._bias[token] = self._bias.get(token, 0.0) + bias
        self._grammar_text = grammar_of(params)
        self._grammar: Grammar | None = None
        self._start(0, prompt, ())

    @property
    def draws(self) -> int:
        return self._draws

    def sample(self, i: int) -> int:
        logits = self._changed(self._context.row(i))
        token = self._choose(logits)
        if self._grammar is not None:
            if not self._grammar.allows(token):
                token = self._choose(np.where(self._grammar.allowed(), logits, np.float32(-np.inf)))
            if not self._grammar.allows(token):
                raise _nothing_left()
            self._grammar.accept(token)
        if self._penalties is not None:
            self._penalties.accept(token)
        return token

    def rewind(self, draws: int, prompt: Sequence[int], emitted: Sequence[int]) -> None:
        self.close()
        self._start(draws, prompt, emitted)

    def close(self) -> None:
        if self._grammar is not None:
            self._grammar.close()
            self._grammar = None

    def _start(self, draws: int, prompt: Sequence[int], emitted: Sequence[int]) -> None:
        stream = np.random.PCG64(self._params.seed & 0xFFFFFFFF)
        self._random = np.random.Generator(stream.advance(draws))
        self._draws = draws
        self._penalties = None
        if penalizes(self._params):  # nothing else looks back
            self._penalties = Penalties(self._params, penalty_window(self._params, self._context.cells))
            for token in (*prompt, *emitted):
                self._penalties.accept(token)
        if self._grammar_text:
            self._grammar = self._compile(self._grammar_text)
            for token in emitted:
                self._grammar.accept(token)

    def _changed(self, row: Logits) -> Logits:
        """The row with biases and penalties: itself where there are none."""
        if not self._bias and self._penalties is None:
            return row
        logits = row.copy()
        if self._bias:
            logits[list(self._bias)] += np.fromiter(self._bias.values(), np.float32, len(self._bias))
        if self._penalties is not None:
            self._penalties.apply(logits)
        return logits

    def _choose(self, logits: Logits) -> int:
        if self._greedy:
            token = int(logits.argmax())
            if logits[token] == -np.inf:
                raise _nothing_left()
            return token
        ids, weights = shortlist(logits, self._params.top_k)
        if weights[0] == -np.inf:
            raise _nothing_left()
        ids, weights = narrowed(ids, weights, self._params)
        self._draws += 1
        return int(ids[drawn(weights, self._params.temperature, self._random.random())])


class Penalties:
    """Repetition, frequency and presence penalties over the last `window` tokens."""

    def __init__(self, params: SamplingParams, window: int) -> None:
        self._params, self._window = params, window
        self._last: deque[int] = deque()
        self._counts: Counter[int] = Counter()

    def accept(self, token: int) -> None:
        """Take `token` into the window; the oldest leaves when it is full."""
        if len(self._last) == self._window and self._last:
            oldest = self._last.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        if self._window:
            self._last.append(token)
            self._counts[token] += 1

    def apply(self, logits: Logits) -> None:
        """Change `logits` in place. Negative ones are multiplied, where the paper (CTRL) would have raised them."""
        ids = np.fromiter(self._counts, np.intp, len(self._counts))
        counts = np.fromiter(self._counts.values(), np.float32, len(self._counts))
        seen = logits[ids]
        repeat = np.float32(self._params.repeat_penalty)
        seen = np.where(seen <= 0, seen * repeat, seen / repeat)
        logits[ids] = seen - counts * self._params.frequency_penalty - self._params.presence_penalty


def shortlist(logits: Logits, k: int) -> tuple[Ids, Weights]:
    """The ids of the `k` highest logits and these, highest first; of equal ones the lower id. `k` <= 0: all of them.

    The k-th highest of the chunks' maxima is a bound that all of them reach and few others do: 0.1 ms for 49,152 and
    0.3 ms for 262,144 ids, where numpy's partition takes 2 and 11 ms.
    """
    n = len(logits)
    if not 0 < k < n:
        order = np.argsort(-logits, kind="stable")
        return order, logits[order].astype(np.float64)
    whole = n - n % _CHUNK
    peaks = logits[:whole].reshape(-1, _CHUNK).max(axis=1)
    floor = np.partition(peaks, len(peaks) - k)[len(peaks) - k] if k <= len(peaks) else -np.inf
    ids = np.flatnonzero(logits >= floor)
    ids = ids[np.argsort(-logits[ids], kind="stable")[:k]]
    return ids, logits[ids].astype(np.float64)


def narrowed(ids: Ids, weights: Weights, params: SamplingParams) -> tuple[Ids, Weights]:
    """What typical, top-p and min-p leave of candidates whose weights (logits) fall; at least `min_keep`, and one."""
    keep = max(0, params.min_keep)
    if params.typical_p < 1:
        kept = _typical(weights, params.typical_p, keep)
        ids, weights = ids[kept], weights[kept]
    if params.top_p < 1:
        reached = np.cumsum(_softmax(weights)) >= params.top_p
        count = _first(reached, keep, len(weights))
        ids, weights = ids[:count], weights[:count]
    if params.min_p > 0:
        count = max(1, keep, int((weights >= weights[0] + math.log(params.min_p)).sum()))
        ids, weights = ids[:count], weights[:count]
    return ids, weights


def drawn(weights: Weights, temperature: float, random: float) -> int:
    """Which of the candidates `random`, in [0, 1), falls on; at temperature 0 the highest."""
    if temperature <= 0:
        return int(weights.argmax())
    total = np.cumsum(_softmax(weights / temperature))
    return min(int(np.searchsorted(total, random * total[-1], side="right")), len(weights) - 1)


def _typical(weights: Weights, p: float, keep: int) -> Ids:
    """Places, in order, of the candidates whose surprise is nearest to the entropy (arXiv:2202.00666)."""
    probabilities = _softmax(weights)
    surprise = -np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    order = np.argsort(np.abs(surprise - (probabilities * surprise).sum()), kind="stable")
    count = _first(np.cumsum(probabilities[order]) > p, keep, len(weights))
    return np.sort(order[:count])


def _first(reached: npt.NDArray[np.bool_], keep: int, n: int) -> int:
    """How many to take until `reached` and not fewer than `keep`; all `n` where it never is."""
    count = int(reached.argmax()) + 1 if reached.any() else n
    return min(n, max(count, keep))


def _softmax(weights: Weights) -> Weights:
    odds: Weights = np.exp(weights - weights.max())
    odds /= odds.sum()
    return odds


def _nothing_left() -> RequestError:
    return RequestError("the grammar and the other sampling options leave no token to choose; relax one of them")
