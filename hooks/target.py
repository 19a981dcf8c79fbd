"""A loaded target model and its sessions. `pilotfish.hooks.protocols` has the whole contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pilotfish.hooks.types import Ack, EnginePin, Lane, SamplingParams, TokenLogprob


@runtime_checkable
class Rows(Protocol):
    """The target's decisions after one forward: row i follows the pending token and the first i proposals."""

    def __len__(self) -> int:
        """Rows that may be picked: 1 + the number of proposals verified."""
        ...

    def pick(self, i: int) -> int:
        """Draw row i's token with the request's own sampler and advance the sampler by it.

        Rows are picked in order, each at most once, and never past the first pick that differs from the
        proposal: one random draw per emitted token, none for a rejected one.
        """
        ...

    def logprobs(self, i: int, token: int, n: int) -> TokenLogprob:
        """Log-probability of `token` in row i before sampling, with the `n` most probable tokens."""
        ...


@runtime_checkable
class TargetSession(Protocol):
    """The target's side of one request.

    The cache holds the history minus its last token; that token is pending and leads the next forward.
    """

    @property
    def cached(self) -> int:
        """Prompt tokens taken from an earlier request's cache."""
        ...

    def prefill(self) -> int:
        """Feed the next prompt block; returns how many prompt tokens are still to be fed before the pending one."""
        ...

    def verify(self, proposals: Sequence[int]) -> Rows:
        """Forward `[pending] + proposals`, padded if the lane says so. Must be followed by commit or rollback."""
        ...

    def commit(self, tokens: Sequence[int]) -> Ack:
        """Make `tokens` (the picks, in order, at least one) history; cuts what was rejected from the cache."""
        ...

    def rollback(self) -> Ack:
        """Forget the last forward. Acknowledges the unchanged history."""
        ...

    def close(self) -> None:
        """Free the slot. The cache may be kept for a later request with the same prefix."""
        ...


@runtime_checkable
class ShiftsContext(Protocol):
    """A target session whose cache can forget tokens in its middle, so that an answer goes on past its context's end.

    The history stays whole, and so do its acknowledgements: only the cache forgets. One that is a plain `TargetSession`
    ends with its context.
    """

    @property
    def can_shift(self) -> bool:
        """Whether this model's cache can."""
        ...

    def shift(self, keep: int, discard: int) -> None:
        """Forget `discard` of the tokens that the cache holds behind the first `keep`; those that follow move down.

        Between a commit and a verify. What has to be fed again is fed by `prefill`, as a prompt is. What the cache
        holds afterwards must not depend on the rounds that committed its tokens. Raises EngineError.
        """
        ...


@runtime_checkable
class Tokenizer(Protocol):
    """The target's own tokenizer, exactly as its engine does it."""

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of `text`; `add_special` adds BOS/EOS as the model's metadata asks."""
        ...

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes a token stands for in output; control tokens are empty unless `special`."""
        ...

    def decode(self, tokens: Sequence[int], *, special: bool = True) -> bytes:
        """The bytes of a token sequence."""
        ...


@runtime_checkable
class TargetEngine(Protocol):
    """A loaded target model. One that is not `HasSlots` has one slot: a session is closed before the next is opened."""

    lane: Lane
    engine: EnginePin
    tokenizer: Tokenizer
    n_ctx: int  # tokens
    n_vocab: int
    eog: frozenset[int]  # every end-of-generation id

    def open(self, prompt: Sequence[int], sampling: SamplingParams, *, cache_prompt: bool = True) -> TargetSession:
        """Start a session. Raises ContextOverflow, RequestError (grammar, ids out of range) or EngineError."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...
