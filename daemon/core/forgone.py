"""What blocks would have won that the account could not pay for.

An account in debt could never be paid back by drafts that it does not let be verified, however right they are. So one
such block at a time is followed: its tokens are compared with what plain decoding commits from there on, and then it is
known what the block would have won. That much is credit, and what a block verified on it loses is taken off again:
beyond the account's own allowance nothing is lost that was not left on the table before.
"""

from __future__ import annotations

from collections.abc import Sequence


class Forgone:
    """One request's, in seconds: `credit`, never below 0, and `most`, which it never exceeds."""

    def __init__(self) -> None:
        self.credit = self.most = 0.0
        self._tokens: Sequence[int] = ()
        self._wins: Sequence[float] = ()
        self._right = 0

    @property
    def following(self) -> bool:
        """Whether a block is being followed: not all of it was compared yet."""
        return bool(self._tokens)

    def follow(self, tokens: Sequence[int], wins: Sequence[float], most: float) -> None:
        """Follow a block of `tokens`, proposed for the next position: `wins[k]` seconds if the first k are right.

        There is one more of them than tokens. The credit is not to exceed `most` seconds.
        """
        self._tokens, self._wins, self.most, self._right = tokens, wins, max(most, self.most), 0

    def committed(self, tokens: Sequence[int]) -> None:
        """Compare with what was committed."""
        for token in tokens:
            if not self._tokens:
                return
            if token == self._tokens[self._right]:
                self._right += 1
                if self._right < len(self._tokens):
                    continue
            self.credit = min(self.most, max(0.0, self.credit + self._wins[self._right]))
            self._tokens = ()

    def let_go(self) -> None:
        """Follow it no longer."""
        self._tokens = ()

    def spend(self, seconds: float) -> None:
        """A round lost so much: by its block, or because drafters were asked in vain."""
        self.credit = max(0.0, self.credit - seconds)
