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


class RunningDigest:
    """The digest of a growing id sequence, without the ids: what a party is expected to acknowledge."""

    __slots__ = ("_hash", "position", "round")

    def __init__(self, prompt: Iterable[int] = ()) -> None:
        ids = array("i", prompt)
        self.round = 0
        self.position = len(ids)
        self._hash = hashlib.blake2b(_packed(ids), digest_size=DIGEST_SIZE)

    def commit(self, tokens: Iterable[int]) -> Ack:
        """Take `tokens` in, count the round and acknowledge the new sequence."""
        added = array("i", tokens)
        self._hash.update(_packed(added))
        self.position += len(added)
        self.round += 1
        return self.ack()

    def ack(self) -> Ack:
        """Acknowledge the sequence as it stands."""
        return Ack(self.round, self.position, self._hash.hexdigest())


class History:
    """The committed ids of one session: the prompt, then everything committed since.

    `tokens` is a live `array('i')`; readers may index and slice it but must not change it.
    `round` counts commits (not tokens); `len(history)` is the position.
    """

    __slots__ = ("_digest", "tokens")

    def __init__(self, prompt: Iterable[int] = ()) -> None:
        self.tokens = array("i", prompt)
        self._digest = RunningDigest(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def round(self) -> int:
        return self._digest.round

    def commit(self, tokens: Sequence[int]) -> Ack:
        """Append `tokens`, count the round and acknowledge the new history."""
        added = array("i", tokens)  # raises before anything changed
        self.tokens.extend(added)
        return self._digest.commit(added)

    def ack(self) -> Ack:
        """Acknowledge the history as it stands; this is also what a rollback answers."""
        return self._digest.ack()


def _packed(ids: array[int]) -> bytes:
    if ids.itemsize == 4 and _LITTLE_ENDIAN:
        return ids.tobytes()
    return b"".join(token.to_bytes(4, "little", signed=True) for token in ids)


_LITTLE_ENDIAN = array("H", [1]).tobytes()[0] == 1
