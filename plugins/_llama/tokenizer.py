"""The target's tokenizer: libllama's, called as llama-server calls it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from pilotfish.hooks.errors import EngineError, RequestError
from pilotfish.plugins._llama.library import lib

_PIECE_ROOM = 64  # bytes; a longer piece costs one more call


class LlamaTokenizer:
    """Encodes and decodes with the vocabulary of a loaded model; after `close` calls raise EngineError."""

    def __init__(self, vocab: Any) -> None:
        self._vocab = vocab
        self.n_vocab: int = lib.llama_vocab_n_tokens(vocab)
        self._pieces: dict[tuple[int, bool], bytes] = {}

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of `text`, as `/tokenize` gives them: a BOS in the text is not noticed, so it may double.

        Raises RequestError for text that has no UTF-8 form (a lone surrogate).
        """
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(f"the text is not valid Unicode ({error}); send whole characters") from error
        room = len(data) + 2
        count, ids = self._tokenize(data, room, add_special, parse_special)
        if count < 0:  # more tokens than bytes: the library says how many
            count, ids = self._tokenize(data, -count, add_special, parse_special)
        tokens: list[int] = ids[:count]
        return tokens

    def _tokenize(self, data: bytes, room: int, add_special: bool, parse_special: bool) -> tuple[int, Any]:
        self._need_vocab()
        ids = (ctypes.c_int32 * room)()
        return lib.llama_tokenize(self._vocab, data, len(data), ids, room, add_special, parse_special), ids

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes `token` stands for; control tokens are empty unless `special`. Raises RequestError."""
        key = (token, special)
        found = self._pieces.get(key)
        if found is None:
            found = self._pieces[key] = self._piece(token, special)
        return found

    def _piece(self, token: int, special: bool) -> bytes:
        if not 0 <= token < self.n_vocab:
            raise RequestError(f"token id {token} is outside the vocabulary of {self.n_vocab} tokens")
        self._need_vocab()
        room = _PIECE_ROOM
        while True:
            buffer = ctypes.create_string_buffer(room)
            count = lib.llama_token_to_piece(self._vocab, token, buffer, room, 0, special)
            if count >= 0:
                return buffer.raw[:count]
            room = -count

    def decode(self, tokens: Sequence[int], *, special: bool = True) -> bytes:
        """The pieces of `tokens`, joined: what `/detokenize` answers. Raises RequestError."""
        return b"".join(self.piece(token, special=special) for token in tokens)

    def close(self) -> None:
        """The model is about to be freed: libllama would read freed memory, so nothing may ask it any more."""
        self._vocab = None

    def _need_vocab(self) -> None:
        if self._vocab is None:
            raise EngineError("the model of this tokenizer is closed; load it again")

    def end_tokens(self) -> frozenset[int]:
        """Every id that ends a generation."""
        is_end, vocab = lib.llama_vocab_is_eog, self._vocab
        return frozenset(token for token in range(self.n_vocab) if is_end(vocab, token))
