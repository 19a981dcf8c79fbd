"""libllama as the shared verifier parts see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pilotfish.hooks.types import EngineOptions, EnginePin, EngineSetting, SamplingParams, TargetPin
from pilotfish.plugins._cells.context import CellContext
from pilotfish.plugins._cells.forward_watch import ForwardWatch
from pilotfish.plugins._cells.memory_layers import experts
from pilotfish.plugins._cells.prompt_reading import PromptReader
from pilotfish.plugins._cells.snapshots import snapshots_for
from pilotfish.plugins._llama.context import LlamaContext
from pilotfish.plugins._llama.devices import accelerators
from pilotfish.plugins._llama.far_ends import COMPUTING, FarEnds, far_ends_of
from pilotfish.plugins._llama.library import batch_invariant, engine_pin, lib, log_aside
from pilotfish.plugins._llama.model import (
    BLOCK_ROOM,
    STOCK,
    cuts_its_tail,
    exact_setting,
    load_model,
    make_context,
    make_sequences,
)
from pilotfish.plugins._llama.prompts_apart import prompts_apart
from pilotfish.plugins._llama.tokenizer import LlamaTokenizer
from pilotfish.plugins.verifiers._llama_sampling import LlamaSampler
from pilotfish.plugins.verifiers._llama_weights import has_floats, is_uniform

UNIFORM_WIDTHS = (2, 3, 4, 6, 8, 12, 16)
OTHER_WIDTHS = (2, 3)


class LlamaModel:
    """A `Model`. It owns the `llama_model`."""

    def __init__(self, handle: Any, pin: TargetPin, options: EngineOptions, far_ends: FarEnds | None = None) -> None:
        self._handle, self._pin, self._options = handle, pin, options
        self.far_ends = far_ends
        self._vocab = lib.llama_model_get_vocab(handle)
        self.tokenizer = LlamaTokenizer(self._vocab)
        self.n_ctx_train: int = lib.llama_model_n_ctx_train(handle)

    def context(
        self, setting: EngineSetting, options: EngineOptions, width: int, watch: ForwardWatch | None = None
    ) -> CellContext:
        snapshots = snapshots_for(self._pin, width)
        return make_context(self._handle, self._pin, setting, options, width, snapshots=snapshots, watch=watch)

    def watched(self, setting: EngineSetting, options: EngineOptions, width: int) -> tuple[CellContext, ForwardWatch]:
        watch = ForwardWatch(lib._lib)
        return self.context(setting, options, width, watch), watch

    def contexts(self, setting: EngineSetting, options: EngineOptions, width: int, back: int) -> list[LlamaContext]:
        snapshots = snapshots_for(self._pin, back)
        if self.far_ends is None:
            return self._sequences(setting, options, width, snapshots)
        with self.far_ends.called(COMPUTING):
            found = self._sequences(setting, options, width, snapshots)
        for context in found:
            context.watch(self.far_ends.watching)
        return found

    def _sequences(
        self, setting: EngineSetting, options: EngineOptions, width: int, snapshots: int
    ) -> list[LlamaContext]:
        return make_sequences(self._handle, self._pin, setting, options, width, options.slots, snapshots=snapshots)

    def obstacle(self, context: CellContext) -> str:
        return cuts_its_tail(self._handle, context)

    def prompts_apart(self, setting: EngineSetting, free: Callable[[], int]) -> PromptReader | None:
        if self.far_ends is not None:  # a second context there, and its cells twice through the network
            return None
        if accelerators() and self._options.gpu_layers != 0:  # what was measured was measured on processors
            return None
        return prompts_apart(self._handle, self._pin, setting, self._options, free)

    def sampler(
        self, context: CellContext, params: SamplingParams, prompt: Sequence[int], eog: frozenset[int]
    ) -> LlamaSampler:
        return LlamaSampler(context, self._vocab, params, prompt, eog)

    def close(self) -> None:
        if self._handle:
            self.tokenizer.close()
            lib.llama_model_free(self._handle)
            self._handle = None
            if self.far_ends is not None:
                self.far_ends.close()


class LlamaDialect:
    """A `Dialect`."""

    name = "llama"
    room = BLOCK_ROOM

    def exact_setting(self, options: EngineOptions) -> EngineSetting:
        return exact_setting(options)

    def fallback(self) -> EngineSetting | None:
        return STOCK

    def prompt_block(self, options: EngineOptions) -> int:
        return options.batch_size

    def candidates(self, pin: TargetPin) -> tuple[int, ...]:
        return UNIFORM_WIDTHS if is_uniform(tuple(weight.path for weight in pin.weights)) else OTHER_WIDTHS

    def experts(self, pin: TargetPin) -> int:
        return experts(pin)

    def one_row_differs(self, pin: TargetPin) -> bool:
        alike = {} if accelerators() else batch_invariant  # kernels are the processor's
        return has_floats(tuple(weight.path for weight in pin.weights), alike)

    def on_processor(self, options: EngineOptions) -> bool:
        return options.gpu_layers == 0 or not accelerators()

    def aside(self) -> AbstractContextManager[None]:
        return log_aside()

    def open(self, pin: TargetPin, setting: EngineSetting, options: EngineOptions) -> LlamaModel:
        far_ends = far_ends_of(options)
        try:
            return LlamaModel(load_model(pin, setting, options, far_ends), pin, options, far_ends)
        except BaseException:
            if far_ends is not None:
                far_ends.close()
            raise

    def engine_pin(self, state_dir: Path | None) -> EnginePin:
        return engine_pin(state_dir)
