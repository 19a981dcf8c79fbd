"""libllama below the sessions: raw forwards, each row reduced to a digest of its bits, for certification."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any

from pilotfish.hooks.types import EngineOptions, EnginePin, EngineSetting, TargetPin
from pilotfish.plugins._llama.context import LlamaContext
from pilotfish.plugins._llama.library import engine_pin, lib
from pilotfish.plugins._llama.model import cuts_its_tail, load_model, make_context
from pilotfish.plugins._llama.tokenizer import LlamaTokenizer

DIGEST_BYTES = 16


class LlamaProbe:
    """A `Probe`. `close` frees the model; a second call does nothing."""

    def __init__(self, model: Any, context: LlamaContext, engine: EnginePin, obstacle: str) -> None:
        self._model, self._context = model, context
        self._tokenizer = LlamaTokenizer(lib.llama_model_get_vocab(model))
        self.engine = engine
        self.obstacle = obstacle
        self.n_ctx = min(context.cells, lib.llama_model_n_ctx_train(model))
        self.n_vocab = self._tokenizer.n_vocab
        self.seconds = 0.0

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without BOS."""
        return self._tokenizer.encode(text, add_special=False)

    def feed(self, tokens: Sequence[int]) -> None:
        """Forward `tokens` as one prompt block. Raises EngineError."""
        started = time.perf_counter()
        self._context.feed(tokens)
        lib.llama_synchronize(self._context.handle)
        self.seconds = time.perf_counter() - started

    def rows(self, tokens: Sequence[int], width: int) -> list[bytes]:
        """One forward padded to `width`; the digests of the tokens' rows. Raises EngineError."""
        started = time.perf_counter()
        if width == 1:
            self._context.step(tokens[0])  # what a session's plain step runs
        else:
            self._context.forward(tokens, width)
        self._context.row(0)  # waits for the computation where the device works on its own
        self.seconds = time.perf_counter() - started
        return [self._digest(i) for i in range(len(tokens))]

    def _digest(self, i: int) -> bytes:
        return hashlib.blake2b(self._context.row(i).data, digest_size=DIGEST_BYTES).digest()

    def cut(self, size: int) -> bool:
        """Keep the first `size` cells."""
        return self._context.cut(size)

    def clear(self) -> None:
        """Forget every cell."""
        self._context.clear()

    def close(self) -> None:
        """Free the model and its context."""
        if self._model:
            self._context.close()
            lib.llama_model_free(self._model)
            self._model = None


def open_probe(pin: TargetPin, setting: EngineSetting, max_width: int, options: EngineOptions) -> LlamaProbe:
    """Load `pin` in `setting`. Raises BrokenModel or EngineError, naming the model."""
    model = load_model(pin, setting, options)
    context: LlamaContext | None = None
    try:
        context = make_context(model, pin, setting, options, max_width)
        return LlamaProbe(model, context, engine_pin(options.state_dir), cuts_its_tail(model, context))
    except BaseException:
        if context is not None:
            context.close()
        lib.llama_model_free(model)
        raise
