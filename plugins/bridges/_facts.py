"""What a bridge has to know of a vocabulary as a whole, found once and kept for every later session."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from pilotfish.hooks.protocols import Vocabulary
from pilotfish.hooks.types import TokenizerPin
from pilotfish.plugins.bridges._cutting import anchor_of, is_bytes

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """The last `room` results of something slow, by key. Safe from any thread; two threads never compute the same."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._found: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K, find: Callable[[], V]) -> V:
        with self._lock:
            if key not in self._found:
                self._found[key] = find()
                while len(self._found) > self._room:
                    self._found.popitem(last=False)
            self._found.move_to_end(key)
            return self._found[key]


@dataclass(frozen=True, slots=True)
class Facts:
    """`specials`: the special ids by their text, the lowest where several have the same. `anchor`: see `anchor_of`."""

    specials: Mapping[bytes, int]
    anchor: str | None


_facts: Kept[TokenizerPin, Facts] = Kept(16)


def facts_of(vocabulary: Vocabulary) -> Facts:
    """Looks at every id the first time: 0.1 s for SmolLM2's 49,152 through libllama."""
    return _facts.get(vocabulary.pin, lambda: Facts(_specials(vocabulary), anchor_of(vocabulary)))


def _specials(vocabulary: Vocabulary) -> Mapping[bytes, int]:
    if is_bytes(vocabulary):
        return {}
    found: dict[bytes, int] = {}
    for token in filter(vocabulary.special, range(vocabulary.pin.n_vocab)):
        found.setdefault(vocabulary.piece(token), token)
    return found


def opening(drafter: TokenizerPin, target: TokenizerPin, first: int) -> tuple[list[int], bool]:
    """How the drafter's history begins when the target's begins with `first`, and whether that covers `first`.

    A model that was trained to see BOS at the start of every text sees its own, whatever the target's is called.
    """
    begins = [drafter.bos] if drafter.add_bos and drafter.bos is not None else []
    return begins, bool(begins) and first == target.bos
