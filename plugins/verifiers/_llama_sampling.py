"""A request's sampler: libllama's own samplers, in llama-server's order.

The chain is: logit bias, penalties, top-k, typical, top-p, min-p, temperature, distribution with the request's
seed; at temperature 0 it ends after the penalties in an argmax. (DRY, top-n-sigma and XTC are off unless asked
for, and this contract cannot ask.) Without a grammar one foreign call reads the row, draws and advances.

With a grammar it goes as llama-server does: draw first, keep the token if the grammar allows it, otherwise
mask the row by the grammar and draw again. libllama ends the process when a grammar is handed a token that it
does not allow, so only tokens that just passed the mask are ever accepted.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.types import SamplingParams
from pilotfish.plugins._llama.context import LlamaContext, Logits
from pilotfish.plugins._llama.library import lib
from pilotfish.plugins.verifiers._llama_grammar import compile_grammar, grammar_of

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class LlamaSampler:
    """Draws tokens for one request. Raises RequestError for options no sampler can follow.

    `sample(i)` draws from row i of the context's last forward and advances by the token drawn. `rewind` takes
    draws back. The prompt is accepted into the penalties first, never into the grammar.
    """

    def __init__(
        self, context: LlamaContext, vocab: Any, params: SamplingParams, prompt: Sequence[int], eog: frozenset[int]
    ) -> None:
        _validate(params)
        self._context, self._vocab, self._params, self._eog = context, vocab, params, eog
        self._grammar_text = grammar_of(params)
        self._grammar: Any = None
        self._chain: Any = None
        self._draws = 0
        try:
            self._start(prompt, ())
        except RequestError:
            self.close()
            raise

    def sample(self, i: int) -> int:
        """Draw row i's token and advance by it. Raises RequestError when a grammar leaves nothing to draw."""
        if self._grammar:
            return self._sample_by_grammar(i)
        self._draws += 1
        token: int = lib.llama_sampler_sample(self._chain, self._context.handle, i)
        return token

    @property
    def draws(self) -> int:
        """Random draws so far; a mark to rewind to."""
        return self._draws

    def rewind(self, draws: int, prompt: Sequence[int], emitted: Sequence[int]) -> None:
        """The state after `prompt` and `emitted`, which took `draws` draws: built anew and advanced.

        Only for the rare rollback after a pick; a snapshot before every forward would cost each token.
        """
        self.close()
        self._start(prompt, emitted)
        if not self._greedy:
            one = _Candidates(1)
            last = lib.llama_sampler_chain_get(self._chain, lib.llama_sampler_chain_n(self._chain) - 1)
            for _ in range(draws):  # the distribution draws exactly once per row, whatever the row holds
                lib.llama_sampler_apply(last, one.pointer)
        self._draws = draws

    def close(self) -> None:
        """Free the samplers; a second call does nothing."""
        for sampler in (self._chain, self._grammar):
            if sampler:
                lib.llama_sampler_free(sampler)
        self._chain = self._grammar = None

    @property
    def _greedy(self) -> bool:
        # below temperature 0 the whole chain comes down to an argmax, except that `typical` may drop the maximum
        return self._params.temperature <= 0 and self._params.typical_p >= 1

    def _start(self, prompt: Sequence[int], emitted: Sequence[int]) -> None:
        if self._grammar_text:
            schema = "" if self._params.grammar else self._params.json_schema
            self._grammar = compile_grammar(self._vocab, self._grammar_text, schema)
            self._candidates, self._one = _Candidates(self._context.n_vocab), _Candidates(1)
            for token in emitted:
                lib.llama_sampler_accept(self._grammar, token)
        self._chain = self._build()
        if _penalizes(self._params):  # no other sampler looks back
            window = self._params.repeat_last_n
            for token in (*prompt[-window:], *emitted):
                lib.llama_sampler_accept(self._chain, token)

    def _build(self) -> Any:
        chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        for sampler in self._samplers():
            lib.llama_sampler_chain_add(chain, sampler)
        return chain

    def _samplers(self) -> list[Any]:
        p, n_vocab = self._params, self._context.n_vocab
        # a window beyond the context holds no more tokens, but libllama would reserve memory for it
        window = max(0, min(p.repeat_last_n, self._context.cells))
        samplers = [lib.llama_sampler_init_logit_bias(n_vocab, len(bias), bias)] if (bias := self._biases()) else []
        samplers.append(
            lib.llama_sampler_init_penalties(n_vocab, window, p.repeat_penalty, p.frequency_penalty, p.presence_penalty)
        )
        if self._greedy:
            return [*samplers, lib.llama_sampler_init_greedy()]
        keep = max(0, p.min_keep)
        return [
            *samplers,
            lib.llama_sampler_init_top_k(max(0, min(p.top_k, n_vocab))),
            lib.llama_sampler_init_typical(p.typical_p, keep),
            lib.llama_sampler_init_top_p(p.top_p, keep),
            lib.llama_sampler_init_min_p(p.min_p, keep),
            lib.llama_sampler_init_temp_ext(p.temperature, 0.0, 1.0),
            lib.llama_sampler_init_dist(p.seed & 0xFFFFFFFF),
        ]

    def _biases(self) -> Any:
        """The request's biases (ids outside the vocabulary are ignored, as stock does), bans, and suppressed ids."""
        pairs = [(token, bias) for token, bias in self._params.logit_bias if 0 <= token < self._context.n_vocab]
        if self._params.ignore_eos:
            pairs += [(token, -math.inf) for token in sorted(self._eog)]
        count = ctypes.c_int32()
        suppressed = lib.llama_vocab_get_suppress_tokens(self._vocab, ctypes.byref(count))
        pairs += [(suppressed[i], -math.inf) for i in range(count.value)]
        return (lib.llama_logit_bias * len(pairs))(*pairs)

    def _sample_by_grammar(self, i: int) -> int:
        row = self._context.row(i)
        token = self._draw(row, masked=False)
        if not self._allows(token):
            token = self._draw(row, masked=True)
            if not self._allows(token):
                self._exhausted()
        lib.llama_sampler_accept(self._grammar, token)
        lib.llama_sampler_accept(self._chain, token)
        return token

    def _draw(self, row: Logits, *, masked: bool) -> int:
        candidates = self._candidates
        candidates.fill(row)
        if masked:
            lib.llama_sampler_apply(self._grammar, candidates.pointer)
            if not candidates.any_left():
                self._exhausted()
        lib.llama_sampler_apply(self._chain, candidates.pointer)
        self._draws += 1
        return candidates.selected()

    def _allows(self, token: int) -> bool:
        self._one.array[0] = (token, 1.0, 0.0)
        lib.llama_sampler_apply(self._grammar, self._one.pointer)
        return self._one.any_left()

    @staticmethod
    def _exhausted() -> None:
        raise RequestError("the grammar and the other sampling options leave no token to choose; relax one of them")


class _Candidates:
    """A `llama_token_data_array` over a numpy array."""

    def __init__(self, size: int) -> None:
        self.array = np.zeros(size, dtype=_CANDIDATE)
        self._ids = np.arange(size, dtype=np.int32)
        self._data = self.array.ctypes.data_as(lib.llama_token_data_p)
        self._struct = lib.llama_token_data_array(self._data, size, -1, False)
        self.pointer = ctypes.byref(self._struct)

    def fill(self, row: Logits) -> None:
        """Set ids and logits anew: samplers sort the array in place and may point elsewhere."""
        self.array["id"] = self._ids
        self.array["logit"] = row
        self._struct.data, self._struct.size = self._data, len(self.array)
        self._struct.selected, self._struct.sorted = -1, False

    def any_left(self) -> bool:
        """Whether any logit is above minus infinity."""
        return bool((self.array["logit"] > -np.inf).any())

    def selected(self) -> int:
        """The id that the chain selected."""
        token: int = self._struct.data[self._struct.selected].id
        return token


def _penalizes(params: SamplingParams) -> bool:
    neutral = params.repeat_penalty == 1 and params.frequency_penalty == 0 and params.presence_penalty == 0
    return params.repeat_last_n > 0 and not neutral


def _validate(params: SamplingParams) -> None:
    if not (math.isfinite(params.repeat_penalty) and params.repeat_penalty > 0):
        raise RequestError(f"repeat_penalty: must be finite and greater than 0, got {params.repeat_penalty}")
    for name in ("frequency_penalty", "presence_penalty"):
        if not math.isfinite(getattr(params, name)):
            raise RequestError(f"{name}: must be finite, got {getattr(params, name)}")
    for name in ("temperature", "top_p", "min_p", "typical_p"):
        if math.isnan(getattr(params, name)):
            raise RequestError(f"{name}: must be a number, got nan")
