"""Drafting with a language model: greedy, one forward per proposed token, over a cache that follows the history.

What an engine has to bring is a `DraftModel`: forwards at the end of one sequence of cells, and cutting its tail. The
rest is here, the same for every engine.

    loaded    cache = DraftCache(model)                      once
    request   session = cache.open(prompt, min_confidence)   feeds what the cells do not hold yet
    round     session.propose(k)                             one catch-up feed, then one forward per further token
    unload    cache.close()

The cells always hold ids that were fed in this order, nothing else decides what is reused: a session that finds
another one's ids, or its own rejected proposals, keeps the common prefix and cuts the rest. Commits feed nothing, so a
stretch in which the drafter was not asked costs one block at the next proposal.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.history import History
from pilotfish.hooks.protocols import Vocabulary
from pilotfish.hooks.types import EMPTY, Ack, Proposal, shared_prefix

MIN_CONFIDENCE = 0.4  # a forward of a small model and one more row to verify cost about that much of a plain step

Guess = tuple[int, float]  # the most likely next id and its probability


class DraftModel(Protocol):
    """A loaded model with one sequence of cells. Every method may raise EngineError."""

    n_ctx: int  # cells there are
    n_vocab: int  # ids of the tokenizer; the rows may be longer where an engine pads them

    def feed(self, tokens: Sequence[int]) -> Guess:
        """Forward `tokens` (at least one, in blocks of the engine's choice) after the cells in use; the most likely
        next id and its probability after the last of them.
        """
        ...

    def cut(self, size: int) -> None:
        """Keep the first `size` cells; 0 must also work after a failed `feed`, when nobody knows what they hold."""
        ...


class DraftCache:
    """A model's cells and the ids in them, shared by the sessions of that model. Safe from several threads.

    Sessions may even take turns: each finds its longest common prefix again, at the price of feeding the rest.
    """

    def __init__(self, model: DraftModel) -> None:
        self.lock = threading.Lock()
        self._model: DraftModel | None = model
        self.n_ctx, self.n_vocab = model.n_ctx, model.n_vocab
        self._ids = array("i")
        self._guesses: dict[int, Guess] = {}  # number of cells -> what follows them; only near the end
        self._sound = True  # whether the cells hold `_ids`
        self._user: object = None  # whose history the cells were last compared with,
        self._common = 0  # and how many leading cells equal it

    def open(self, prompt: Sequence[int], *, min_confidence: float = MIN_CONFIDENCE) -> ModelSession:
        """A session on `prompt`, already fed. Raises EngineError."""
        session = ModelSession(self, prompt, min_confidence=min_confidence)
        session.warm_up()
        return session

    def close(self) -> None:
        """Let go of the model, once no call is using it: what is asked of a session from now on raises EngineError."""
        with self.lock:
            self._model = None

    def follow(self, user: object, history: array[int]) -> Guess:
        """What follows `history` (at least one id), of which every cell not yet there is fed in one call.

        `user` says whose history it is: as long as it stays the same only the end is compared, because a history only
        grows. Needs the lock. Raises EngineError.
        """
        self._common = self._keep(user, history)
        guess = self._guesses.get(len(history)) if self._common == len(history) else None
        if guess is None:
            self._cut(min(self._common, len(history) - 1))
            guess = self._feed(history[len(self._ids) :])
            self._common = len(history)
        return guess

    def after(self, size: int, token: int) -> Guess:
        """What follows the first `size` cells and `token`; needs the lock, and `follow` before. Raises EngineError."""
        if len(self._ids) > size and self._ids[size] == token and size + 1 in self._guesses:
            return self._guesses[size + 1]  # an earlier proposal found it out
        self._cut(size)
        return self._feed(array("i", (token,)))

    def _keep(self, user: object, history: array[int]) -> int:
        """How many leading cells equal `history`."""
        if not self._sound:
            self._cut(0)
        start = self._common if user is self._user else 0
        self._user = user
        common = start + shared_prefix(self._ids[start:], history[start:])
        self._guesses = {size: guess for size, guess in self._guesses.items() if size >= common}
        return common

    def _cut(self, size: int) -> None:
        if self._sound and size >= len(self._ids):
            return
        model, self._sound = self._loaded(), False
        model.cut(size)
        del self._ids[size:]
        self._guesses = {n: guess for n, guess in self._guesses.items() if n <= size}
        self._common = min(self._common, size)
        self._sound = True

    def _feed(self, tokens: array[int]) -> Guess:
        model, self._sound = self._loaded(), False
        token, sure = model.feed(tokens)
        self._ids.extend(tokens)
        self._sound = True
        guess = self._guesses[len(self._ids)] = int(token), min(float(sure), 1.0)  # in this order nan stays nan
        return guess

    def _loaded(self) -> DraftModel:
        if self._model is None:
            raise EngineError("the draft model was unloaded while a session still used it; open a new session")
        return self._model


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What the sessions of a loaded draft model share."""

    cache: DraftCache
    vocabulary: Vocabulary

    def close(self) -> None:
        """Drop the model, once no call to a session is running."""
        self.cache.close()


class ModelSession:
    """A `DraftSession` over a `DraftCache`.

    A proposal ends before the token with which its own probability, the product over its tokens, falls below
    `min_confidence`: that product is what the token is worth. It also ends before an id that is none of the
    vocabulary's, and where the context is full. A history that has outgrown the context, or holds an id that the
    model does not know, is still kept and acknowledged; nothing is proposed on it any more.
    """

    def __init__(self, cache: DraftCache, prompt: Sequence[int], *, min_confidence: float = MIN_CONFIDENCE) -> None:
        self._cache = cache
        self._history = History(prompt)
        self._min_confidence = min_confidence
        self._foreign = not self._knows(self._history.tokens)

    def warm_up(self) -> None:
        """Feed the history, so that the first proposal does not have to. Raises EngineError."""
        if self._room() > 0:
            with self._cache.lock:
                self._cache.follow(self, self._history.tokens)

    def propose(self, k: int) -> Proposal:
        """Raises EngineError when the model fails; the session can go on."""
        k = min(k, self._room())
        if k <= 0:
            return EMPTY
        with self._cache.lock:
            return self._proposal(k)

    def commit(self, tokens: Sequence[int]) -> Ack:
        self._foreign = self._foreign or not self._knows(tokens)
        return self._history.commit(tokens)

    def rollback(self) -> Ack:
        return self._history.ack()  # the proposal's cells stay until it is known what replaces them

    def close(self) -> None:
        pass  # the cells stay for the next session

    def _proposal(self, k: int) -> Proposal:
        tokens: list[int] = []
        confidence: list[float] = []
        token, sure = self._cache.follow(self, self._history.tokens)
        worth = sure
        while worth >= self._min_confidence and 0 <= token < self._cache.n_vocab:
            tokens.append(token)
            confidence.append(sure)
            if len(tokens) == k:
                break
            token, sure = self._cache.after(len(self._history) + len(tokens) - 1, token)
            worth *= sure
        return Proposal(tuple(tokens), tuple(confidence)) if tokens else EMPTY

    def _room(self) -> int:
        """How many tokens may be proposed: the last one needs no cell."""
        n = len(self._history)
        return 0 if self._foreign or n == 0 else self._cache.n_ctx - n + 1

    def _knows(self, tokens: Sequence[int]) -> bool:
        return not tokens or (min(tokens) >= 0 and max(tokens) < self._cache.n_vocab)
