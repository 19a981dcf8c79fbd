"""Vocabularies that bridges translate between: an engine's tokenizer, and plain bytes."""

from __future__ import annotations

import hashlib

from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.protocols import Tokenizer
from pilotfish.hooks.types import TokenizerPin


class TokenizerVocabulary:
    """The vocabulary of an engine's tokenizer."""

    def __init__(self, tokenizer: Tokenizer, pin: TokenizerPin) -> None:
        self.pin = pin
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special=False, parse_special=False)

    def piece(self, token: int) -> bytes:
        return self._tokenizer.piece(token, special=True)

    def special(self, token: int) -> bool:
        return not self._tokenizer.piece(token) and bool(self._tokenizer.piece(token, special=True))


BYTES = 256


class ByteVocabulary:
    """Every byte is an id: what a drafter speaks that only suggests text."""

    pin = TokenizerPin(hashlib.sha256(b"pilotfish bytes").hexdigest(), "bytes", BYTES)

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def piece(self, token: int) -> bytes:
        if not 0 <= token < BYTES:
            raise RequestError(f"{token} is no byte")
        return bytes((token,))

    def special(self, token: int) -> bool:
        return False
