"""A request's sampler: libllama's own samplers, in llama-server's order.

The chain is: logit bias, penalties, top-k, typical, top-p, min-p, temperature, distribution with the request's
seed; at temperature 0 it ends after the penalties in an argmax. (DRY, top-n-sigma and XTC are off unless asked
for, and this contract cannot ask.) Without a grammar one foreign call reads the row, draws and advances; an argmax of
the row as it is needs none of that, nor the list of candidates that libllama would write for it.

With a grammar it goes as llama-server does: draw first, keep the token if the grammar allows it, otherwise
mask the row by the grammar and draw again. libllama ends the process when a grammar is handed a token that it
does not allow, so only tokens that just passed the mask are ever accepted.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.types import SamplingParams
from pilotfish.plugins._cells.candidates import Candidates
from pilotfish.plugins._cells.context import CellContext, Logits
from pilotfish.plugins._cells.grammar import grammar_of
from pilotfish.plugins._cells.sampling_options import biases, is_greedy, penalizes, penalty_window, validate
from pilotfish.plugins._llama.library import lib
from pilotfish.plugins.verifiers._llama_grammar import compile_grammar


class LlamaSampler:
    """Draws tokens for one request. Raises RequestError for options no sampler can follow.

    `sample(i)` draws from row i of the context's last forward and advances by the token drawn. `rewind` takes
    draws back. The prompt is accepted into the penalties first, never into the grammar.
    """

    def __init__(
        self, context: CellContext, vocab: Any, params: SamplingParams, prompt: Sequence[int], eog: frozenset[int]
    ) -> None:
        validate(params)
        self._context, self._vocab, self._params, self._eog = context, vocab, params, eog
        self._grammar_text = grammar_of(params)
        self._biased = self._biases()
        self._argmax = is_greedy(params) and not (penalizes(params) or len(self._biased) or self._grammar_text)
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
        if self._argmax:
            return int(self._context.row(i).argmax())
        token: int = lib.llama_sampler_sample(self._chain, self._context.handle, self._context.first_row + i)
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
        if not is_greedy(self._params):
            one = _candidates(1)
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

    def _start(self, prompt: Sequence[int], emitted: Sequence[int]) -> None:
        if self._grammar_text:
            schema = "" if self._params.grammar else self._params.json_schema
            self._grammar = compile_grammar(self._vocab, self._grammar_text, schema)
            self._candidates, self._one = _candidates(self._context.n_vocab), _candidates(1)
            for token in emitted:
                lib.llama_sampler_accept(self._grammar, token)
        self._chain = self._build()
        if penalizes(self._params):  # no other sampler looks back
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
        window = penalty_window(p, self._context.cells)  # libllama reserves memory for all of it
        bias = self._biased
        samplers = [lib.llama_sampler_init_logit_bias(n_vocab, len(bias), bias)] if bias else []
        samplers.append(
            lib.llama_sampler_init_penalties(n_vocab, window, p.repeat_penalty, p.frequency_penalty, p.presence_penalty)
        )
        if is_greedy(self._params):
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
        count = ctypes.c_int32()
        suppressed = lib.llama_vocab_get_suppress_tokens(self._vocab, ctypes.byref(count))
        pairs = biases(self._params, self._context.n_vocab, self._eog, suppressed[: count.value])
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


def _candidates(size: int) -> Candidates:
    return Candidates(lib.llama_token_data, lib.llama_token_data_array, size)
