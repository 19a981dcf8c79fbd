"""The target's tokenizer: the engine's own, called as llama-server calls it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pilotfish.hooks.errors import EngineError, RequestError

_PIECE_ROOM = 64  # bytes; a longer piece costs one more call


class _Call(Protocol):
    def __call__(self, *arguments: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class TokenizerCalls:
    """The library's functions, each of which takes its vocabulary first; they have other names in other engines."""

    count: _Call
    tokenize: _Call
    piece: _Call
    is_end: _Call


class CellTokenizer:
    """Encodes and decodes with `vocab`, the library's handle of it; after `close` calls raise EngineError."""

    def __init__(self, calls: TokenizerCalls, vocab: Any) -> None:
        self._calls, self.vocab = calls, vocab
        self.n_vocab: int = calls.count(vocab)
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
        return self._calls.tokenize(self.vocab, data, len(data), ids, room, add_special, parse_special), ids

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
            count = self._calls.piece(self.vocab, token, buffer, room, 0, special)
            if count >= 0:
                return buffer.raw[:count]
            room = -count

    def decode(self, tokens: Sequence[int], *, special: bool = True) -> bytes:
        """The pieces of `tokens`, joined: what `/detokenize` answers. Raises RequestError."""
        return b"".join(self.piece(token, special=special) for token in tokens)

    def close(self) -> None:
        """The model is about to be freed: libllama would read freed memory, so nothing may ask it any more."""
        self.vocab = None

    def _need_vocab(self) -> None:
        if self.vocab is None:
            raise EngineError("the model of this tokenizer is closed; load it again")

    def end_tokens(self) -> frozenset[int]:
        """Every id that ends a generation."""
        is_end, vocab = self._calls.is_end, self.vocab
        return frozenset(token for token in range(self.n_vocab) if is_end(vocab, token))
