"""libllama's tokenizer."""

from __future__ import annotations

from typing import Any

from pilotfish.plugins._cells.tokenizer import CellTokenizer, TokenizerCalls
from pilotfish.plugins._llama.library import lib

_CALLS = TokenizerCalls(
    count=lib.llama_vocab_n_tokens,
    tokenize=lib.llama_tokenize,
    piece=lib.llama_token_to_piece,
    is_end=lib.llama_vocab_is_eog,
)


class LlamaTokenizer(CellTokenizer):
    """Over a `llama_vocab`."""

    def __init__(self, vocab: Any) -> None:
        super().__init__(_CALLS, vocab)
