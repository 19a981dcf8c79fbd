"""mlx-lm as the shared verifier parts see it: a store's tensors in, a model and its contexts out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from pilotfish.hooks.errors import EngineError, UnsupportedRequest
from pilotfish.hooks.types import EngineOptions, EnginePin, EngineSetting, SamplingParams, TargetPin
from pilotfish.plugins._cells.context import CellContext
from pilotfish.plugins._cells.forward_watch import ForwardWatch
from pilotfish.plugins._cells.sampling import CellSampler, Grammar
from pilotfish.plugins._mlx import build
from pilotfish.plugins._mlx.attention import Attention
from pilotfish.plugins._mlx.caches import leaves, sequence_caches
from pilotfish.plugins._mlx.context import MLXContext
from pilotfish.plugins._mlx.layers import layers_of
from pilotfish.plugins._mlx.setting import exact_setting, quantized
from pilotfish.plugins._mlx.sizes import ModelSizes
from pilotfish.plugins._mlx.tokenizer import MLXTokenizer
from pilotfish.plugins._mlx.weights import build_model

WIDTHS = (2, 3, 4, 6, 8, 12, 16)  # what the check at load tries
ROOM = 16  # rows that a window's ring leaves room for at least
CELL_STEP = 256  # cells are allotted in multiples of this


class MLXTarget:
    """A `Model`. `device` is where it computes."""

    far_ends = None  # MLX computes on this machine

    def __init__(self, pin: TargetPin, device: Any) -> None:
        layers = layers_of(pin)
        self._pin, self._device = pin, device
        self._model: Any = None
        floats = mx.float32 if device.type == mx.DeviceType.cpu else None  # a processor has no arithmetic for halves
        with mx.stream(device):
            self._model = build_model(layers, pin.name, floats)
            self._n_vocab, self._head = _tried(self._model, pin.name)
        self.tokenizer = MLXTokenizer(layers, self._n_vocab)
        self.n_ctx_train = ModelSizes.of(layers).trained or 1 << 30

    def context(self, setting: EngineSetting, options: EngineOptions, width: int) -> MLXContext:
        cells = -(-options.n_ctx // CELL_STEP) * CELL_STEP
        kind = quantized(setting, self._head, self._pin.name)
        return MLXContext(
            self._model,
            self._pin.name,
            partial(sequence_caches, self._model, self._pin.name, cells, width, kind),
            Attention(self._model, fused=setting.flash_attention is not False),
            self._device,
            cells=cells,
            n_vocab=self._n_vocab,
            block=max(options.batch_size, width),
            max_width=width,
        )

    def watched(self, setting: EngineSetting, options: EngineOptions, width: int) -> tuple[CellContext, ForwardWatch]:
        raise EngineError(f"{self._pin.name}: MLX's forwards cannot be looked into while they compute")

    def contexts(self, setting: EngineSetting, options: EngineOptions, width: int, back: int) -> list[MLXContext]:
        """One of its own for each slot: forwards of several are not shared here."""
        return [self.context(setting, options, width) for _ in range(options.slots)]

    def obstacle(self, context: CellContext) -> str:
        """Found out by class, and then by trying."""
        if isinstance(context, MLXContext) and context.obstacle:
            return context.obstacle
        context.feed([0])
        context.forward([0], min(2, context.max_width))
        cut = context.cut(1)
        context.clear()
        return "" if cut else "its memory cannot cut its tail"

    def prompts_apart(self, setting: EngineSetting, free: Callable[[], int]) -> None:
        """Its lanes read prompts as fast as any setting of it."""

    def sampler(
        self, context: CellContext, params: SamplingParams, prompt: Sequence[int], eog: frozenset[int]
    ) -> CellSampler:
        return CellSampler(context, params, prompt, eog, _no_grammar)

    def close(self) -> None:
        if self._model is not None:
            self._model = None
            mx.clear_cache()


def _no_grammar(grammar: str) -> Grammar:
    raise UnsupportedRequest(
        "grammar and json_schema are not supported for MLX models; leave them out, or ask Ollama's own engine"
    )


def _tried(model: Any, name: str) -> tuple[int, int]:
    """The length of a row, and that of a key (0 where no layer keeps keys); everything that is made once is made now.

    Raises EngineError.
    """
    cache = make_prompt_cache(model)
    try:
        rows = model(mx.array([[0]]), cache=cache)
        mx.eval(rows, [part.state for part in cache])
        keys = (getattr(leaf, "keys", None) for leaf in leaves(cache))
        return int(rows.shape[-1]), next((int(found.shape[-1]) for found in keys if found is not None), 0)
    except Exception as error:
        raise EngineError(f"{name}: mlx-lm cannot compute with it ({type(error).__name__}: {error})") from error


class MLXDialect:
    """A `Dialect`. `device` is `cpu`, `gpu` or empty: MLX's own choice. Raises EngineError where there is no such."""

    name = "mlx"
    room = ROOM

    def __init__(self, device: str) -> None:
        if device == "gpu" and not mx.is_available(mx.gpu):
            raise EngineError('verifiers.mlx.device = "gpu": this MLX sees no GPU; use "cpu" or leave the key out')
        self._asked = device
        self._device = mx.Device(mx.gpu if device == "gpu" else mx.cpu) if device else mx.default_device()

    def exact_setting(self, options: EngineOptions) -> EngineSetting:
        return exact_setting(options)

    def fallback(self) -> EngineSetting | None:
        return None

    def prompt_block(self, options: EngineOptions) -> int:
        return options.batch_size

    def candidates(self, pin: TargetPin) -> tuple[int, ...]:
        return WIDTHS

    def experts(self, pin: TargetPin) -> int:
        return ModelSizes.of(layers_of(pin)).experts

    def one_row_differs(self, pin: TargetPin) -> bool:
        return False

    def on_processor(self, options: EngineOptions) -> bool:
        return False  # what a part would tell is told for models in GGUF

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def open(self, pin: TargetPin, setting: EngineSetting, options: EngineOptions) -> MLXTarget:
        return MLXTarget(pin, mx.Device(mx.cpu) if options.gpu_layers == 0 else self._device)

    def engine_pin(self, state_dir: Path | None) -> EnginePin:
        return EnginePin(self.name, build.version(), build.fingerprint(state_dir, self._asked))
