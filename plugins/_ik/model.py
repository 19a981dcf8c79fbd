"""ik_llama.cpp as the shared verifier parts see it: a GGUF in, a model and its contexts out."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.types import EngineOptions, EnginePin, EngineSetting, SamplingParams, TargetPin
from pilotfish.plugins._cells.context import CellContext
from pilotfish.plugins._cells.forward_watch import ForwardWatch
from pilotfish.plugins._cells.memory_layers import experts
from pilotfish.plugins._cells.sampling import CellSampler
from pilotfish.plugins._cells.setting import CELL_BLOCK, cache_type, default_threads
from pilotfish.plugins._cells.tokenizer import CellTokenizer, TokenizerCalls
from pilotfish.plugins._ik.context import IkContext
from pilotfish.plugins._ik.fitness import accelerators
from pilotfish.plugins._ik.grammar import IkGrammar
from pilotfish.plugins._ik.library import Library, engine_pin, log, open_library
from pilotfish.plugins._ik.model_fitness import IK_CACHE_TYPES, check_model, check_vocabulary
from pilotfish.plugins._ik.wide_blocks import at_once

WIDEST = 31  # 32 begins another class of kernels in every build tried
PROMPT_BLOCK = 128  # no slower than 512 on a CPU (docs/lab-notes.md), and a next turn has less to read again
WIDTHS = (2, 3, 4, 6, 8, 12, 16, 24, WIDEST)  # what the check at load tries


class IkModel:
    """A `Model`. It owns the `llama_model`."""

    far_ends = None  # ik_llama.cpp's wheels have no way to any

    def __init__(self, library: Library, handle: Any, pin: TargetPin) -> None:
        self._library, self._handle, self._pin = library, handle, pin
        lib = library.lib
        self._vocab = lib.llama_model_get_vocab(handle)
        self.tokenizer = tokenizer(library, self._vocab)
        self.n_ctx_train: int = lib.llama_n_ctx_train(handle)

    def context(
        self, setting: EngineSetting, options: EngineOptions, width: int, watch: ForwardWatch | None = None
    ) -> IkContext:
        params = self._library.api.llama_context_default_params()
        params.n_ctx = -(-options.n_ctx // CELL_BLOCK) * CELL_BLOCK
        params.n_batch = params.n_ubatch = max(options.batch_size, width)
        params.n_threads = params.n_threads_batch = options.threads or default_threads()
        params.type_k = cache_type(self._pin, setting.cache_type_k, IK_CACHE_TYPES)
        params.type_v = cache_type(self._pin, setting.cache_type_v, IK_CACHE_TYPES)
        if setting.flash_attention is not None:
            params.flash_attn = setting.flash_attention
        params.n_ubatch = at_once(self._pin, params.n_ubatch)
        if watch is not None:
            params.cb_eval = watch.callback
        return IkContext(self._library, self._handle, params, self._pin.name, width)

    def watched(self, setting: EngineSetting, options: EngineOptions, width: int) -> tuple[IkContext, ForwardWatch]:
        watch = ForwardWatch(self._library.lib)
        return self.context(setting, options, width, watch), watch

    def contexts(self, setting: EngineSetting, options: EngineOptions, width: int, back: int) -> list[IkContext]:
        """Contexts of their own: sequences in one would change each other's rows."""
        found: list[IkContext] = []
        try:
            for _ in range(options.slots):
                found.append(self.context(setting, options, width))
        except BaseException:
            for context in found:
                context.close()
            raise
        return found

    def obstacle(self, context: CellContext) -> str:
        """Windows cut like anything else: no cache here is as small as a window, so nothing has been forgotten."""
        bos = max(0, self._library.lib.llama_vocab_bos(self._vocab))
        context.feed([bos, bos])
        cut = context.cut(1)
        context.clear()
        return "" if cut else "its memory cannot cut its tail"

    def sampler(
        self, context: CellContext, params: SamplingParams, prompt: Sequence[int], eog: frozenset[int]
    ) -> CellSampler:
        def compiled(grammar: str) -> IkGrammar:
            return IkGrammar(self._library, self._vocab, context, grammar)

        return CellSampler(context, params, prompt, eog, compiled)

    def prompts_apart(self, setting: EngineSetting, free: Callable[[], int]) -> None:
        """Its lanes read prompts as fast as any setting of it."""

    def close(self) -> None:
        if self._handle:
            self.tokenizer.close()
            self._library.lib.llama_free_model(self._handle)
            self._handle = None


class IkDialect:
    """A `Dialect`. Raises EngineError when the library cannot be loaded."""

    name = "ik"
    room = WIDEST

    def __init__(self, options: EngineOptions, log_target: str) -> None:
        self.library = open_library(options.state_dir, log_target)

    @staticmethod
    def exact_setting(options: EngineOptions) -> EngineSetting:
        if options.cache_type_k or options.cache_type_v:  # quantized values need flash attention
            flash = options.flash_attention is not False
            return EngineSetting(options.cache_type_k or "f16", options.cache_type_v or "f16", flash, engine="ik")
        # one class of widths up to 31 in every number format tried; flash attention, which a launch may ask for as a
        # matter of speed, splits it and is for certification to weigh
        return EngineSetting("f16", "f16", flash_attention=False, engine="ik")

    def fallback(self) -> EngineSetting | None:
        return None

    def prompt_block(self, options: EngineOptions) -> int:
        return options.batch_size if options.gpu_layers else min(options.batch_size, PROMPT_BLOCK)

    def candidates(self, pin: TargetPin) -> tuple[int, ...]:
        return WIDTHS

    def experts(self, pin: TargetPin) -> int:
        return experts(pin)

    def one_row_differs(self, pin: TargetPin) -> bool:
        return False

    def on_processor(self, options: EngineOptions) -> bool:
        return options.gpu_layers == 0 or not accelerators(options.state_dir)

    def aside(self) -> AbstractContextManager[None]:
        return log.aside()

    def open(self, pin: TargetPin, setting: EngineSetting, options: EngineOptions) -> IkModel:
        check_model(pin, setting, options.state_dir)
        params = self.library.api.llama_model_default_params()
        params.repack_tensors = False  # its usual kernels are fast already, and mapped weights stay shared
        params.use_mmap = options.use_mmap
        if options.gpu_layers is not None:
            params.n_gpu_layers = options.gpu_layers
        return IkModel(self.library, load(self.library, pin, params), pin)

    def engine_pin(self, state_dir: Path | None) -> EnginePin:
        return engine_pin(state_dir)


def load(library: Library, pin: TargetPin, params: Any) -> Any:
    """The `llama_model`. Raises BrokenModel when the library refuses the file."""
    if model := _opened(library, pin, params):
        return model
    remedy = f"pull {pin.name} again, or leave this model to libllama"
    raise BrokenModel(f"{pin.name}: ik_llama.cpp cannot load {pin.path}: {log.last_words()}; {remedy}")


def load_vocabulary(library: Library, pin: TargetPin) -> Any:
    """A `llama_model` without weights. Raises BrokenModel or EngineError."""
    check_vocabulary(pin, None)
    params = library.api.llama_model_default_params()
    params.vocab_only = True
    model = _opened(library, pin, params)
    if not model:
        raise BrokenModel(f"{pin.name}: {pin.path} has no vocabulary ({log.last_words()}); use a complete GGUF")
    return model


def _opened(library: Library, pin: TargetPin, params: Any) -> Any:
    log.last_words()
    return library.lib.llama_model_load_from_file(os.fsencode(pin.path), params)


def tokenizer(library: Library, vocab: Any) -> CellTokenizer:
    """The model's own."""
    lib = library.lib
    calls = TokenizerCalls(
        count=lib.llama_vocab_n_tokens,
        tokenize=lib.llama_vocab_tokenize,
        piece=lib.llama_token_to_piece_vocab,
        is_end=lib.llama_vocab_is_eog,
    )
    return CellTokenizer(calls, vocab)
