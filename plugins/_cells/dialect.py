"""What differs from engine to engine, as the shared parts see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from pilotfish.hooks.protocols import Tokenizer
from pilotfish.hooks.types import EngineOptions, EnginePin, EngineSetting, SamplingParams, TargetPin
from pilotfish.plugins._cells.context import CellContext
from pilotfish.plugins._cells.forward_watch import ForwardWatch
from pilotfish.plugins._cells.prompt_reading import PromptReader


class EngineTokenizer(Tokenizer, Protocol):
    """A loaded model's own."""

    n_vocab: int

    def end_tokens(self) -> frozenset[int]:
        """Every id that ends a generation."""
        ...

    def close(self) -> None:
        """The model is about to be freed."""
        ...


class Sampler(Protocol):
    """Draws tokens for one request. Speculation is exact because a rejected row never reaches it."""

    @property
    def draws(self) -> int:
        """Random draws so far; a mark to rewind to."""
        ...

    def sample(self, i: int) -> int:
        """Draw row i's token and advance by it. Raises RequestError when a grammar leaves nothing to draw."""
        ...

    def rewind(self, draws: int, prompt: Sequence[int], emitted: Sequence[int]) -> None:
        """The state after `prompt` and `emitted`, which took `draws` draws."""
        ...

    def close(self) -> None:
        """Free what it holds; a second call does nothing."""
        ...


class OtherMachines(Protocol):
    """Those that compute layers of a loaded model, as `SpansMachines` tells of them."""

    endpoints: tuple[str, ...]

    def gone(self) -> tuple[str, ...]:
        """Those to which there is no connection any more."""
        ...

    def when_lost(self, call: Callable[[str], None]) -> None:
        """Have `call` told why nothing is computed any more, before the process ends."""
        ...


class Model(Protocol):
    """Loaded weights. Contexts are closed before it is."""

    @property
    def far_ends(self) -> OtherMachines | None:
        """The other machines that compute it, too."""
        ...

    @property
    def tokenizer(self) -> EngineTokenizer:
        """The model's own."""
        ...

    @property
    def n_ctx_train(self) -> int:
        """Tokens the model was trained for."""
        ...

    def context(self, setting: EngineSetting, options: EngineOptions, width: int) -> CellContext:
        """A context of one sequence with room for blocks of `width` rows. Raises EngineError."""
        ...

    def watched(self, setting: EngineSetting, options: EngineOptions, width: int) -> tuple[CellContext, ForwardWatch]:
        """The same, with something to look into its forwards. Raises EngineError."""
        ...

    def contexts(self, setting: EngineSetting, options: EngineOptions, width: int, back: int) -> Sequence[CellContext]:
        """One for each of `options.slots` sequences, with room for blocks of `width` rows. Raises EngineError.

        Those that share a handle can be in one forward. No sequence has more than `back` rows in a forward.
        """
        ...

    def obstacle(self, context: CellContext) -> str:
        """Empty when the cache can give up its last cells, otherwise why not; leaves the cache empty."""
        ...

    def prompts_apart(self, setting: EngineSetting, free: Callable[[], int]) -> PromptReader | None:
        """What reads prompts faster than a context in `setting` does, while `free()` bytes of memory leave room for it;
        None where nothing does. Raises BrokenModel."""
        ...

    def sampler(
        self, context: CellContext, params: SamplingParams, prompt: Sequence[int], eog: frozenset[int]
    ) -> Sampler:
        """A sampler over the context's rows. Raises RequestError for options no sampler can follow."""
        ...

    def close(self) -> None:
        """Free the weights; a second call does nothing."""
        ...


class Dialect(Protocol):
    """One engine's library."""

    name: str  # the registry name, and the start of the names of its files
    room: int  # rows of logits a context has room for at least; no lane found at load is wider

    def exact_setting(self, options: EngineOptions) -> EngineSetting:
        """What the launch asked for, and the setting in which most widths agree for the rest."""
        ...

    def fallback(self) -> EngineSetting | None:
        """Taken where nobody asked for a setting and the device refuses the exact default."""
        ...

    def prompt_block(self, options: EngineOptions) -> int:
        """The tokens of a prompt block in a lane that is found at load: at most as many as the launch asks for."""
        ...

    def candidates(self, pin: TargetPin) -> tuple[int, ...]:
        """The widths above 1 that the check at load tries."""
        ...

    def experts(self, pin: TargetPin) -> int:
        """How many experts a layer has; 0 for none. Raises BrokenModel."""
        ...

    def one_row_differs(self, pin: TargetPin) -> bool:
        """Whether one row alone may be computed in another way than several, too seldom to be seen in a short check.

        Raises BrokenModel.
        """
        ...

    def on_processor(self, options: EngineOptions) -> bool:
        """Whether every layer is computed by this machine's processor, so that all run the same code."""
        ...

    def aside(self) -> AbstractContextManager[None]:
        """Meanwhile the library's own log says nothing to those who read of the model that was opened first."""
        ...

    def open(self, pin: TargetPin, setting: EngineSetting, options: EngineOptions) -> Model:
        """Load the weights. Raises BrokenModel or EngineError, naming the model."""
        ...

    def engine_pin(self, state_dir: Path | None) -> EnginePin:
        """Which build computes."""
        ...
