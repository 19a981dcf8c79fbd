"""Stop strings found while a text grows, in time that grows with the text alone, however many they are.

Aho and Corasick, "Efficient string matching: an aid to bibliographic search", https://doi.org/10.1145/360825.360855
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

MAX_BYTES = 1 << 16  # of all stop strings of a request together: each takes some hundred bytes of memory


@dataclass(frozen=True, slots=True)
class FoundWord:
    """A stop string in the text that was fed: it begins `before` bytes before the end."""

    word: bytes
    before: int


class StopWords:
    """Watches one text for `words`, which are not empty. A state is the longest end of the text that begins one."""

    def __init__(self, words: Sequence[bytes]) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._word = [b""]  # of each state: the longest word that ends there
        self._state = 0
        for word in words:
            self._add(word)
        self._shorter = [0] * len(self._next)  # of each state: that of the next shorter end which begins a word
        self._link()

    @property
    def undecided(self) -> bool:
        """Whether the text ends with the beginning of a stop string."""
        return self._state != 0

    def feed(self, data: bytes) -> FoundWord | None:
        """Go on by `data`. The stop string in it that begins first, and of several there the shortest."""
        found: list[tuple[int, bytes]] = []
        for at, byte in enumerate(data):
            state = self._state
            while state and byte not in self._next[state]:
                state = self._shorter[state]
            self._state = self._next[state].get(byte, 0)
            if word := self._word[self._state]:
                found.append((at + 1 - len(word), word))
        if not found:
            return None
        start, word = min(found)
        return FoundWord(word, len(data) - start)

    def _add(self, word: bytes) -> None:
        state = 0
        for byte in word:
            if byte not in self._next[state]:
                self._next[state][byte] = len(self._next)
                self._next.append({})
                self._word.append(b"")
            state = self._next[state][byte]
        self._word[state] = word

    def _link(self) -> None:
        """Shorter ends first, so that each state finds those of its beginning done."""
        waiting = deque(self._next[0].values())
        while waiting:
            state = waiting.popleft()
            for byte, following in self._next[state].items():
                shorter = self._shorter[state]
                while shorter and byte not in self._next[shorter]:
                    shorter = self._shorter[shorter]
                self._shorter[following] = self._next[shorter].get(byte, 0)
                self._word[following] = self._word[following] or self._word[self._shorter[following]]
                waiting.append(following)
