"""A draft model that mlx-lm computes: forwards at the end of its prompt cache, and trimming it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache, trim_prompt_cache
from mlx_lm.utils import load_model

from pilotfish.hooks.errors import EngineError
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.plugins._mlx.caches import leaves
from pilotfish.plugins._mlx.weights import build_model
from pilotfish.plugins.drafters._drafter_thread import DrafterThread
from pilotfish.plugins.drafters._mlx_device import device_of, float_type
from pilotfish.plugins.drafters._mlx_gguf import load_gguf
from pilotfish.plugins.drafters._mlx_sizes import BLOCK, LAST
from pilotfish.plugins.drafters._model_session import Guess


class MLXModel:
    """A `DraftModel`; `name` is for messages. Every call runs on `thread`, MLX's streams belong to one."""

    def __init__(self, name: str, model: Any, device: Any, thread: DrafterThread, n_ctx: int, n_vocab: int) -> None:
        self.n_ctx, self.n_vocab = n_ctx, n_vocab
        self._name, self._model, self._device, self._thread = name, model, device, thread
        self._cache: Any = None
        self._size = 0  # cells in use

    def feed(self, tokens: Sequence[int]) -> Guess:
        return self._thread.run(self._feed, list(tokens))

    def cut(self, size: int) -> None:
        self._thread.run(self._cut, size)

    def warm_up(self) -> None:
        """Make the cache, find out whether it can be trimmed, and run both kinds of forward once.

        Raises EngineError, naming the cache that cannot be trimmed.
        """
        self._thread.run(self._warm_up)

    def _feed(self, tokens: list[int]) -> Guess:
        with mx.stream(self._device):
            head, last = tokens[:-LAST], tokens[-LAST:]
            for start in range(0, len(head), BLOCK):
                self._model(mx.array([head[start : start + BLOCK]]), cache=self._cache)
                mx.eval([cache.state for cache in self._cache])  # the rows are never asked for, nor computed
            guess: Any = _most_likely(self._model(mx.array([last]), cache=self._cache)[0, -1].astype(mx.float32))
            mx.eval(guess)
        self._size += len(tokens)
        return guess[0].item(), guess[1].item()

    def _cut(self, size: int) -> None:
        if size == 0:  # also after a forward that failed halfway, with layers of different lengths
            self._cache = make_prompt_cache(self._model)
        elif (trimmed := trim_prompt_cache(self._cache, self._size - size)) != self._size - size:
            raise EngineError(f"{self._name}: its cache gave up {trimmed} cells where {self._size - size} were to go")
        self._size = size

    def _warm_up(self) -> None:
        self._cut(0)
        fixed = sorted({type(cache).__name__ for cache in leaves(self._cache) if not _trims(cache, self.n_ctx)})
        if fixed:
            raise EngineError(
                f"{self._name} cannot draft: its cache ({', '.join(fixed)}) cannot be trimmed anywhere within "
                f"{self.n_ctx} tokens; choose a model with full attention for drafters.mlx.model, or a smaller "
                "drafters.mlx.context if its attention has a window"
            )
        for tokens in ([0], [0] * (LAST + 1)):
            self._feed(tokens)
        self._cut(1)
        self._cut(0)


def _most_likely(row: Any) -> Any:
    """The greatest of `row` `(n_vocab,)` and its softmax, not computed yet."""
    return mx.argmax(row), mx.exp(mx.max(row) - mx.logsumexp(row))


def load_layers(layers: TensorLayers, name: str, device: str) -> tuple[Any, Any]:
    """The model in a store's tensors, and the device it computes on. Raises EngineError or BrokenModel."""
    where = device_of(device)
    with mx.stream(where):
        return build_model(layers, name, float_type(where) if where.type == mx.DeviceType.cpu else None), where


def load(path: Path, device: str) -> tuple[Any, Any]:
    """The model in a folder or a GGUF file, and the device it computes on. Raises EngineError or BrokenModel."""
    where = device_of(device)
    with mx.stream(where):
        if path.is_dir():
            try:
                return load_model(path)[0], where
            except (ValueError, FileNotFoundError) as error:
                raise EngineError(f"{path}: mlx-lm cannot load it: {error}") from error
        return load_gguf(path, float_type(where)), where


def free() -> None:
    """Give the memory of dropped arrays back to the system."""
    mx.clear_cache()


def _trims(cache: Any, n_ctx: int) -> bool:
    """Whether any tail can be cut; a window's cache has given up what it would need once it is full."""
    window = getattr(cache, "max_size", None) or getattr(cache, "chunk_size", None)
    return bool(cache.is_trimmable()) and (window is None or n_ctx < window)
