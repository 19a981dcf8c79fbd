"""Committed token ids and the digest by which target and drafters agree on them.

The digest is a running BLAKE2b over the ids as little-endian int32, so n commits of one token and one commit
of n tokens give the same digest, and two parties that acknowledge the same `(round, position, digest)` hold
the same ids.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence

from pilotfish.hooks.types import Ack

DIGEST_SIZE = 16  # bytes


class History:
    """The committed ids of one session: the prompt, then everything committed since.

    `tokens` is a live `array('i')`; readers may index and slice it but must not change it.
    `round` counts commits (not tokens); `len(history)` is the position.
    """

    __slots__ = ("_hash", "round", "tokens")

    def __init__(self, prompt: Iterable[int] = ()) -> None:
        self.tokens = array("i", prompt)
        self.round = 0
        self._hash = hashlib.blake2b(_packed(self.tokens), digest_size=DIGEST_SIZE)

    def __len__(self) -> int:
        return len(self.tokens)

    def commit(self, tokens: Sequence[int]) -> Ack:
        """Append `tokens`, count the round and acknowledge the new history."""
        added = array("i", tokens)
        self.tokens.extend(added)
        self._hash.update(_packed(added))
        self.round += 1
        return self.ack()

    def ack(self) -> Ack:
        """Acknowledge the history as it stands; this is also what a rollback answers."""
        return Ack(self.round, len(self.tokens), self._hash.hexdigest())


def _packed(ids: array[int]) -> bytes:
    if ids.itemsize == 4 and _LITTLE_ENDIAN:
        return ids.tobytes()
    return b"".join(token.to_bytes(4, "little", signed=True) for token in ids)


_LITTLE_ENDIAN = array("H", [1]).tobytes()[0] == 1
