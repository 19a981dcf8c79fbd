"""A loaded target model with one slot, and how its lane is found."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from array import array
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from pilotfish.hooks.errors import ContextOverflow, EngineError, ProtocolViolation, RequestError
from pilotfish.hooks.protocols import Tokenizer
from pilotfish.hooks.types import EngineOptions, EnginePin, EngineSetting, Lane, Parity, SamplingParams, TargetPin
from pilotfish.manifests.remembered import Remembered, stamp_of
from pilotfish.plugins._llama.context import LlamaContext
from pilotfish.plugins._llama.library import engine_pin, lib
from pilotfish.plugins._llama.model import (
    BLOCK_ROOM,
    STOCK,
    cuts_its_tail,
    default_threads,
    exact_setting,
    load_model,
    make_context,
)
from pilotfish.plugins._llama.tokenizer import LlamaTokenizer
from pilotfish.plugins.verifiers._llama_lane_check import LaneCheck, check
from pilotfish.plugins.verifiers._llama_sampling import LlamaSampler
from pilotfish.plugins.verifiers._llama_session import LlamaSession
from pilotfish.plugins.verifiers._llama_slot import LlamaSlot
from pilotfish.plugins.verifiers._llama_weights import is_uniform

log = logging.getLogger("pilotfish.llama")

PLAIN = LaneCheck((1,), False, "")


class LlamaEngine:
    """A `TargetEngine`. It owns the model and its context; `close` frees both.

    `can_rollback` is False for models whose cache cannot give up its last cells: they decode plainly.
    `exact_cache` says that an earlier request's prefix may be kept wherever it ends.
    """

    def __init__(self, model: Any, context: LlamaContext, lane: Lane, engine: EnginePin, slot: LlamaSlot) -> None:
        self._model, self._context, self._slot = model, context, slot
        self.vocab = lib.llama_model_get_vocab(model)
        self.session: LlamaSession | None = None
        self.lane = lane
        self.engine = engine
        self._tokenizer = LlamaTokenizer(self.vocab)
        self.tokenizer: Tokenizer = self._tokenizer
        self.n_vocab = self._tokenizer.n_vocab
        # as llama-server's slot: the cells there are, never more than the model was trained for; a padded lane
        # needs room for the padding of its last forward
        self.n_ctx: int = min(context.cells - lane.widths[0] + 1, lib.llama_model_n_ctx_train(model))
        self.eog = self._tokenizer.end_tokens()
        self.can_rollback = slot.can_rollback
        self.exact_cache = slot.exact

    def open(self, prompt: Sequence[int], sampling: SamplingParams, *, cache_prompt: bool = True) -> LlamaSession:
        """Start a session on `prompt`.

        Raises RequestError (an empty prompt, ids outside the vocabulary, options or a grammar that cannot be
        followed), ContextOverflow from `n_ctx` tokens on, as llama-server, and ProtocolViolation while another
        session is open.
        """
        if self.session is not None:
            raise ProtocolViolation("the engine has one slot and a session is open in it; close that one first")
        ids = self._checked(prompt)
        sampler = LlamaSampler(self._context, self.vocab, sampling, ids, self.eog)
        if not cache_prompt:
            self._slot.clear()
        self.session = LlamaSession(self._slot, ids, sampler, self.lane, self._tokenizer, self._release)
        return self.session

    def _checked(self, prompt: Sequence[int]) -> array[int]:
        try:
            ids = array("i", prompt)
        except (TypeError, OverflowError) as error:
            raise RequestError(f"the prompt contains invalid tokens: {error}; send token ids") from error
        if not ids:
            raise RequestError("the prompt is empty; send at least one token")
        if min(ids) < 0 or max(ids) >= self.n_vocab:
            wrong = next(id for id in ids if not 0 <= id < self.n_vocab)
            raise RequestError(f"the prompt contains invalid tokens: {wrong} is not one of {self.n_vocab}")
        if len(ids) >= self.n_ctx:
            raise ContextOverflow(len(ids), self.n_ctx)
        return ids

    def _release(self) -> None:
        self.session = None

    def close(self) -> None:
        """Free the model; closes the open session, if any. A second call does nothing."""
        if self.session is not None:
            self.session.close()
        if self._model:
            self._tokenizer.close()
            self._context.close()
            lib.llama_model_free(self._model)
            self._model = None


def load(pin: TargetPin, lane: Lane | None, options: EngineOptions) -> LlamaEngine:
    """Load `pin`; without a lane, find one. Raises BrokenModel or EngineError, naming the model."""
    setting = lane.setting if lane else exact_setting(options)
    model = load_model(pin, setting, options)
    context: LlamaContext | None = None
    try:
        context, setting = _context(model, pin, setting, lane, options)
        build = engine_pin(options.state_dir)
        obstacle = cuts_its_tail(model, context)
        found = _find_lane(context, pin, setting, options, build, obstacle) if lane is None else PLAIN
        lane = _lane(found, setting) if lane is None else _narrowed(lane, obstacle)
        block = lane.prefill_block or options.batch_size
        slot = LlamaSlot(context, block, exact=lane.exact_cache, can_rollback=not obstacle)
        return LlamaEngine(model, context, lane, build, slot)
    except BaseException:
        if context is not None:
            context.close()
        lib.llama_model_free(model)
        raise


def _context(
    model: Any, pin: TargetPin, setting: EngineSetting, lane: Lane | None, options: EngineOptions
) -> tuple[LlamaContext, EngineSetting]:
    """A context in `setting`; where nobody asked for it and the device refuses it, in stock's."""
    width = max(BLOCK_ROOM, lane.max_width if lane else 0)
    if lane is not None and lane.prefill_block:
        options = replace(options, batch_size=max(options.batch_size, lane.prefill_block))
    try:
        return make_context(model, pin, setting, options, width), setting
    except EngineError:
        asked = (options.cache_type_k, options.cache_type_v, options.flash_attention)
        if lane is not None or any(value is not None for value in asked):
            raise
        log.warning("%s: the exact setting (%s) is refused here; stock settings instead", pin.name, setting.title)
        return make_context(model, pin, STOCK, options, width), STOCK


def _find_lane(
    context: LlamaContext,
    pin: TargetPin,
    setting: EngineSetting,
    options: EngineOptions,
    build: EnginePin,
    obstacle: str,
) -> LaneCheck:
    if obstacle:
        return LaneCheck((1,), False, obstacle)
    remembered, stamp = Remembered(options.state_dir), stamp_of(pin.path)
    fact = _lane_fact(context, pin, setting, options, build)
    if (known := _as_check(remembered.get(pin.path, fact, stamp))) is not None:
        return known
    uniform = is_uniform(tuple(weight.path for weight in pin.weights))
    found = check(context, uniform=uniform)
    if found.complete:
        remembered.put(pin.path, fact, stamp, asdict(found))
    log.info("%s: widths %s in %s %s", pin.name, found.widths, setting.title, found.reason)
    return found


def _lane_fact(
    context: LlamaContext, pin: TargetPin, setting: EngineSetting, options: EngineOptions, build: EnginePin
) -> str:
    """What a check is remembered as: whatever decides which code computes, so that any change means a new check."""
    weights = [(weight.digest, weight.size, weight.path.stat().st_mtime_ns) for weight in pin.weights]
    environment = sorted((name, value) for name, value in os.environ.items() if name.startswith("GGML_"))
    threads = options.threads or default_threads()
    long_enough = context.cells > 256
    decides = [weights, build.fingerprint, asdict(setting), threads, options.gpu_layers, environment, long_enough]
    return f"lane {hashlib.sha256(json.dumps(decides).encode()).hexdigest()}"


def _as_check(value: Any) -> LaneCheck | None:
    try:
        widths = tuple(value["widths"])
        known = LaneCheck(widths, bool(value["exact_cache"]), str(value["reason"]))
    except (TypeError, KeyError):
        return None
    plausible = widths[:1] == (1,) and all(isinstance(w, int) and 1 <= w <= BLOCK_ROOM for w in widths)
    return known if plausible else None


def _lane(found: LaneCheck, setting: EngineSetting) -> Lane:
    return Lane(
        name=setting.title,
        widths=found.widths,
        setting=setting,
        parity=Parity.LANE if len(found.widths) > 1 else Parity.NONE,
        reason=found.reason,
        exact_cache=found.exact_cache,
    )


def _narrowed(lane: Lane, obstacle: str) -> Lane:
    """The lane as given, or single steps in its setting where the cache cannot be rolled back."""
    if not obstacle:
        return lane
    return replace(lane, widths=(1,), parity=Parity.NONE, reason=obstacle, exact_cache=False)
