"""Grammars by ik_llama.cpp's own parser."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from pilotfish.hooks.errors import RequestError
from pilotfish.plugins._cells.candidates import Candidates
from pilotfish.plugins._cells.context import CellContext
from pilotfish.plugins._cells.grammar import checked
from pilotfish.plugins._cells.grammar_cost import MAX_TIMES
from pilotfish.plugins._ik.library import Library, log

_REPETITION = re.compile(
    r"""(?P<literal>"(?:\\.|[^"\\])*+["\\]?|\[(?:\\.|[^\]\\])*+[\]\\]?|\#[^\r\n]*+)
    | \{\s*(?P<low>\d+)\s*,\s*(?P<high>\d+)\s*\}""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


class IkGrammar:
    """Where a text stands in its grammar. It aborts the process when handed a token that it does not allow.

    `allows` and `allowed` say which it does. Raises RequestError for a grammar that cannot be read.
    """

    def __init__(self, library: Library, vocab: Any, context: CellContext, grammar: str) -> None:
        data = checked(_without_far_limits(grammar), nested=True)
        self._lib, self._context = library.lib, context.handle
        log.last_words()
        self._handle = self._lib.llama_sampler_init_grammar(vocab, data, b"root")
        if not self._handle:
            raise RequestError(f"grammar: failed to parse grammar: {log.last_words()}; send GBNF with a `root` rule")
        entry, struct = library.api.llama_token_data, library.api.llama_token_data_array
        self._all, self._one = Candidates(entry, struct, context.n_vocab), Candidates(entry, struct, 1)

    def allows(self, token: int) -> bool:
        """Whether `token` may come next."""
        self._one.fill(0.0)
        self._one.array["id"] = token
        self._apply(self._one)
        return self._one.any_left()

    def allowed(self) -> npt.NDArray[np.bool_]:
        """`(n_vocab,)`: which tokens may come next."""
        self._all.fill(0.0)
        self._apply(self._all)
        return self._all.array["logit"] > -np.inf

    def _apply(self, candidates: Candidates) -> None:
        pointer = ctypes.cast(candidates.pointer, ctypes.c_void_p)
        self._lib.llama_grammar_sample(self._handle, self._context, pointer)

    def accept(self, token: int) -> None:
        """Go on by `token`, which must be allowed."""
        self._lib.llama_grammar_accept_token(self._handle, self._context, token)

    def close(self) -> None:
        """Free it; a second call does nothing."""
        if self._handle:
            self._lib.llama_grammar_free(self._handle)
            self._handle = None


def _without_far_limits(grammar: str) -> str:
    """`{0,10000}` as `{0,}`: this parser refuses more than MAX_TIMES, which libllama takes for no limit."""

    def relaxed(found: re.Match[str]) -> str:
        far = not found["literal"] and int(found["high"][:9]) > MAX_TIMES
        return f"{{{found['low']},}}" if far else found[0]

    return _REPETITION.sub(relaxed, grammar)
