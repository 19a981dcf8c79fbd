"""A vocabulary that is a list of pieces."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.types import TokenizerPin


class FakeVocabulary:
    """Id i stands for `pieces[i]`; text is encoded greedily, longest piece first. Ids of `specials` are special."""

    def __init__(self, pin: TokenizerPin, pieces: Sequence[bytes] = (), specials: Sequence[int] = ()) -> None:
        self.pin = pin
        self._pieces = list(pieces) or [b"%d " % i for i in range(pin.n_vocab)]
        self._specials = frozenset(specials)

    def encode(self, text: str) -> list[int]:
        data, ids = text.encode(), []
        while data:
            fitting = [i for i, p in enumerate(self._pieces) if p and data.startswith(p) and i not in self._specials]
            if not fitting:
                raise RequestError(f"no piece for {data!r}")
            ids.append(max(fitting, key=lambda i: len(self._pieces[i])))
            data = data[len(self._pieces[ids[-1]]) :]
        return ids

    def piece(self, token: int) -> bytes:
        if not 0 <= token < len(self._pieces):
            raise RequestError(f"token id {token} is outside the vocabulary of {len(self._pieces)} tokens")
        return self._pieces[token]

    def special(self, token: int) -> bool:
        return token in self._specials
