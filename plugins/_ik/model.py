"""ik_llama.cpp as the shared verifier parts see it: a GGUF in, a model and its contexts out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import BrokenModel, EngineError
from pilotfish.hooks.types import EngineOptions, EnginePin, EngineSetting, SamplingParams, TargetPin
from pilotfish.plugins._cells.context import CellContext
from pilotfish.plugins._cells.sampling import CellSampler
from pilotfish.plugins._cells.setting import CACHE_TYPES, CELL_BLOCK, cache_type, default_threads
from pilotfish.plugins._cells.tokenizer import CellTokenizer, TokenizerCalls
from pilotfish.plugins._ik.context import IkContext
from pilotfish.plugins._ik.grammar import IkGrammar
from pilotfish.plugins._ik.library import Library, engine_pin, log, open_library

WIDEST = 32
WIDTHS = (2, 3, 4, 6, 8, 12, 16, 24, 31, WIDEST)  # what the check at load tries

_CACHE_TYPES = {name: kind for name, kind in CACHE_TYPES.items() if name != "bf16"}  # which end the process on AVX2


class IkModel:
    """A `Model`. It owns the `llama_model`."""

    def __init__(self, library: Library, handle: Any, pin: TargetPin) -> None:
        self._library, self._handle, self._pin = library, handle, pin
        lib = library.lib
        self._vocab = lib.llama_model_get_vocab(handle)
        self.tokenizer = tokenizer(library, self._vocab)
        self.n_ctx_train: int = lib.llama_n_ctx_train(handle)

    def context(self, setting: EngineSetting, options: EngineOptions, width: int) -> IkContext:
        params = self._library.api.llama_context_default_params()
        params.n_ctx = -(-options.n_ctx // CELL_BLOCK) * CELL_BLOCK
        params.n_batch = params.n_ubatch = max(options.batch_size, width)
        params.n_threads = params.n_threads_batch = options.threads or default_threads()
        params.type_k = cache_type(self._pin, setting.cache_type_k, _CACHE_TYPES)
        params.type_v = cache_type(self._pin, setting.cache_type_v, _CACHE_TYPES)
        if setting.flash_attention is not None:
            params.flash_attn = setting.flash_attention
        return IkContext(self._library, self._handle, params, self._pin.name, width)

    def contexts(self, setting: EngineSetting, options: EngineOptions, width: int) -> list[IkContext]:
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
        if self._library.lib.llama_model_has_recurrent(self._handle):
            return "its memory cannot cut its tail (recurrent or hybrid)"
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

    def candidates(self, pin: TargetPin) -> tuple[int, ...]:
        return WIDTHS

    def open(self, pin: TargetPin, setting: EngineSetting, options: EngineOptions) -> IkModel:
        if len(pin.weights) > 1:
            raise EngineError(f"{pin.name}: ik_llama.cpp opens models of one file; leave this one to libllama")
        params = self.library.api.llama_model_default_params()
        params.repack_tensors = False  # its usual kernels are fast already, and mapped weights stay shared
        params.use_mmap = options.use_mmap
        if options.gpu_layers is not None:
            params.n_gpu_layers = options.gpu_layers
        return IkModel(self.library, load(self.library, pin, params), pin)

    def engine_pin(self, state_dir: Path | None) -> EnginePin:
        return engine_pin(state_dir)


def load(library: Library, pin: TargetPin, params: Any) -> Any:
    """The `llama_model`. Raises BrokenModel when the library refuses the file or cannot generate with it."""
    lib, remedy = library.lib, f"pull {pin.name} again, or leave this model to libllama"
    model = _opened(library, pin, params)
    if not model:
        raise BrokenModel(f"{pin.name}: ik_llama.cpp cannot load {pin.path}: {log.last_words()}; {remedy}")
    try:
        if lib.llama_model_has_encoder(model) or not lib.llama_model_has_decoder(model):
            raise BrokenModel(f"{pin.name}: {pin.path} is not a decoder-only text model; {remedy}")
        if lib.llama_model_is_recurrent(model):  # a context for one would end the process
            raise EngineError(f"{pin.name}: ik_llama.cpp does not compute recurrent models; leave this one to libllama")
    except (BrokenModel, EngineError):
        lib.llama_free_model(model)
        raise
    return model


def load_vocabulary(library: Library, pin: TargetPin) -> Any:
    """A `llama_model` without weights. Raises BrokenModel."""
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
