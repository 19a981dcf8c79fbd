"""A tokenizer that forgets how prompts begin. `pilotfish conformance` catches it in a verifier, `doctor` in a file."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.hooks.protocols import Tokenizer


class BosDroppingTokenizer:
    """`tokenizer` without the `bos` that it puts, or reads, at the beginning of a text."""

    def __init__(self, tokenizer: Tokenizer, bos: int) -> None:
        self._tokenizer, self._bos = tokenizer, bos

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        ids = self._tokenizer.encode(text, add_special=add_special, parse_special=parse_special)
        return ids[1:] if ids[:1] == [self._bos] else ids

    def piece(self, token: int, *, special: bool = False) -> bytes:
        return self._tokenizer.piece(token, special=special)

    def decode(self, tokens: Sequence[int], *, special: bool = True) -> bytes:
        return self._tokenizer.decode(tokens, special=special)
