"""What a probe is: a loaded model below the sessions. `pilotfish.hooks.protocols` has the whole contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pilotfish.hooks.types import EnginePin, JointStep


@runtime_checkable
class Probe(Protocol):
    """A loaded model in one setting, reached below the sessions: what certification compares and times.

    One sequence of cells, filled from position 0 on. All methods raise EngineError when the engine fails.
    """

    engine: EnginePin
    n_ctx: int  # tokens
    n_vocab: int
    obstacle: str  # why rejected tokens cannot be cut from this model's cache; empty when they can
    seconds: float  # how long the last forward took

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without BOS."""
        ...

    def feed(self, tokens: Sequence[int]) -> None:
        """Forward `tokens` as one prompt block, without rows."""
        ...

    def rows(self, tokens: Sequence[int], width: int) -> list[bytes]:
        """One forward of `tokens`, padded to `width`; for each token a digest of its row's exact bits."""
        ...

    def cut(self, size: int) -> bool:
        """Keep the first `size` cells; False when this kind of memory cannot."""
        ...

    def clear(self) -> None:
        """Forget every cell."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...


@runtime_checkable
class ReadsLogits(Protocol):
    """A probe whose rows can be had as they are, to compare one engine with another."""

    def logits(self, tokens: Sequence[int], width: int) -> bytes:
        """One forward as `Probe.rows`; the tokens' rows, `(len(tokens), n_vocab)` float32 in this machine's order."""
        ...


@runtime_checkable
class LooksDeeper(Protocol):
    """A probe whose rows may tell more than logits do: where two forwards part in any operation, they differ."""

    def look_deeper(self) -> None:
        """From now on each digest of `Probe.rows` is followed by one of everything that was computed for its token.

        Leaves the cells empty. Raises EngineError where forwards that are looked into give other rows.
        """
        ...


@runtime_checkable
class StepsTogether(Protocol):
    """A probe of an engine that `VerifiesTogether`, where requests at once may share forwards."""

    def together(self, sequences: int, *, exact: bool) -> JointStep | None:
        """Time plain steps of `sequences` requests in one forward; None where they take turns.

        With `exact` only as many share it as were found to keep the rows that each has alone. Raises EngineError.
        """
        ...


@runtime_checkable
class ReadsPromptsApart(Protocol):
    """A probe of an engine that `ReadsPromptsFast`."""

    prompts_apart: bool  # whether a lane in the probe's setting reads prompts of a whole block with stock's cache types


@runtime_checkable
class TellsEdges(Protocol):
    """A probe that knows where else its rows are worth a look: one without this has a plain memory and no experts."""

    edges: tuple[int, ...]  # lengths of which the rows that follow go over the edge of a window, or lie beyond it
    experts: bool  # products choose their code by ids, too
