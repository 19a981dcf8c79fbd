"""A small GGUF as a draft model: its own weights, its own context, greedy guesses from the rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, EngineSetting, TargetPin
from pilotfish.hooks.vocabulary import TokenizerVocabulary
from pilotfish.plugins._cells.context import Logits
from pilotfish.plugins._llama.context import LlamaContext
from pilotfish.plugins._llama.library import lib, settle_log
from pilotfish.plugins._llama.model import STOCK, exact_setting, load_model, make_context
from pilotfish.plugins._llama.tokenizer import LlamaTokenizer
from pilotfish.plugins.drafters._model_session import DraftCache, Guess

log = logging.getLogger("pilotfish.drafters")


class LlamaDraftModel:
    """A `DraftModel` over one context. `block` is how many tokens a forward takes at most."""

    def __init__(self, context: LlamaContext, n_vocab: int, n_ctx: int, block: int) -> None:
        self.n_vocab, self.n_ctx = n_vocab, n_ctx
        self._context, self._block = context, block

    def feed(self, tokens: Sequence[int]) -> Guess:
        """Whatever the block boundaries, only the last token's row is computed. Raises EngineError."""
        context, block = self._context, self._block
        start = (len(tokens) - 1) // block * block
        for at in range(0, start, block):
            context.feed(tokens[at : at + block])
        return most_likely(context.feed_to_row(tokens[start:]))

    def cut(self, size: int) -> None:
        if size == 0:
            self._context.clear()
        elif not self._context.cut(size):
            raise EngineError(f"{self._context.name}: the draft model's cache refused to give up its last cells")


def most_likely(row: Logits) -> Guess:
    """The greatest logit of `row` `(n_vocab,)` and its softmax; of equal ones the first, as libllama's greedy sampler.

    Float32 throughout: 0.1 ms for 49,152 ids, and a confidence needs no more digits.
    """
    token = int(row.argmax())
    return token, 1.0 / float(np.exp(row - row[token]).sum())


class LoadedDraft:
    """A loaded draft model with what its sessions share. `close` frees everything; a second call does nothing."""

    def __init__(self, model: Any, context: LlamaContext, pin: TargetPin, block: int) -> None:
        self._model, self._context = model, context
        self._tokenizer = LlamaTokenizer(lib.llama_model_get_vocab(model))
        n_vocab, trained = self._tokenizer.n_vocab, lib.llama_model_n_ctx_train(model)
        self.vocabulary = TokenizerVocabulary(self._tokenizer, pin.tokenizer)
        self.cache = DraftCache(LlamaDraftModel(context, n_vocab, min(context.cells, trained), block))

    def close(self) -> None:
        if self._model:
            self.cache.close()  # waits for a call that still runs
            self._tokenizer.close()
            self._context.close()
            lib.llama_model_free(self._model)
            self._model = None


def load(pin: TargetPin, options: EngineOptions) -> LoadedDraft:
    """Load `pin` with a context of `options.n_ctx` tokens. Raises BrokenModel or EngineError, naming the model.

    The setting is the one that a target gets which is loaded without a certificate, so that a model that drafts for
    itself computes the same bits.
    """
    settle_log()
    setting = exact_setting(options)
    model = load_model(pin, setting, options)
    context: LlamaContext | None = None
    try:
        context = _context(model, pin, setting, options)
        _check_that_it_cuts(model, context)
        return LoadedDraft(model, context, pin, options.batch_size)
    except BaseException:
        if context is not None:
            context.close()
        lib.llama_model_free(model)
        raise


def _context(model: Any, pin: TargetPin, setting: EngineSetting, options: EngineOptions) -> LlamaContext:
    """A context in `setting`; where the device refuses it and nobody asked for it, in stock's."""
    try:
        return make_context(model, pin, setting, options, 1, swa_full=True)
    except EngineError:
        if any((options.cache_type_k, options.cache_type_v, options.flash_attention is not None)):
            raise
        log.warning("%s: %s is refused here; the drafter takes stock settings", pin.name, setting.title)
        return make_context(model, pin, STOCK, options, 1, swa_full=True)


def _check_that_it_cuts(model: Any, context: LlamaContext) -> None:
    """Two forwards to warm up, and whether the cache can give up the second one's cell."""
    bos = max(0, lib.llama_vocab_bos(lib.llama_model_get_vocab(model)))
    for _ in range(2):
        context.feed_to_row([bos])
    cuts = context.cut(1)
    context.clear()
    if not cuts:
        raise EngineError(
            f"{context.name} cannot draft: its memory (recurrent or hybrid) cannot take back rejected tokens; "
            "choose another model for drafters.llama.model"
        )
