"""What ik_llama.cpp makes of a model, printed as JSON: `python -m pilotfish.plugins._ik.trial ORDER`.

A process of its own, because the library ends the process over some files: tensors of a type that it does not know,
a recurrent model's memory. Weights are not read and take no memory: the library allots them and leaves them empty, so
that its own checks of the file, a context and a forward all run.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import Any

from pilotfish.plugins._ik.build import library
from pilotfish.plugins._ik.child import answer, leave_no_core
from pilotfish.plugins._ik.functions import LogCallback
from pilotfish.plugins._ik.library import Library, load_library

_WARN, _ERROR = 3, 4  # ggml_log_level
_DEGRADED = "QUALITY WILL BE DEGRADED"
_NO_ROOM = "unable to allocate"  # which says nothing about the model
_CELLS, _BLOCK = 256, 32
_TOKENS = 2


@dataclass(frozen=True, slots=True)
class Order:
    """What to try. Cache types are ggml's numbers. `vocabulary`: go no further than the tokenizer."""

    path: str
    type_k: int = 1
    type_v: int = 1
    flash: bool | None = None
    vocabulary: bool = False


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Why not; empty when nothing speaks against it. `broken`: the file is at fault, or unknown to the library."""

    why: str = ""
    broken: bool = False


class _Trial:
    def __init__(self, order: Order) -> None:
        self._order = order
        self._library: Library = load_library(library())
        self._api, self._lib = self._library.api, self._library.lib
        self._warnings: list[str] = []
        self._errors: list[str] = []
        self._callback = LogCallback(self._hear)
        self._lib.llama_log_set(self._callback, None)

    def _hear(self, level: int, text: bytes, _user: object) -> None:
        line = text.decode("utf-8", "replace").strip()
        if level == _ERROR:
            self._errors.append(line)
        elif level == _WARN:
            self._warnings.append(line)

    def _reason(self) -> str:
        """The first error: those after it only say that there was one."""
        return self._errors[0] if self._errors else "it gave no reason"

    def run(self) -> TrialResult:
        """What speaks against the model. Raises MemoryError where address space for its weights is short."""
        model = self._lib.llama_model_load_from_file(os.fsencode(self._order.path), self._model_params())
        if not model and any(_NO_ROOM in line for line in self._errors):
            raise MemoryError(self._reason())
        if not model:
            return TrialResult(self._reason(), broken=True)
        if any(_DEGRADED in line for line in self._warnings):
            return TrialResult("it does not know how this model splits text")
        if self._order.vocabulary:
            return TrialResult()
        return self._kind(model) or self._compute(model)

    def _model_params(self) -> Any:
        params = self._api.llama_model_default_params()
        params.vocab_only, params.dry_run, params.use_mmap = self._order.vocabulary, True, False
        params.n_gpu_layers = 0
        return params

    def _kind(self, model: Any) -> TrialResult | None:
        if self._lib.llama_model_has_encoder(model) or not self._lib.llama_model_has_decoder(model):
            return TrialResult("it is not a decoder-only text model", broken=True)
        if self._lib.llama_model_has_recurrent(model):
            return TrialResult("it is recurrent, in part at least, and cannot give up its last tokens here")
        return None

    def _compute(self, model: Any) -> TrialResult:
        params = self._api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = _CELLS, _BLOCK, _BLOCK
        params.n_threads = params.n_threads_batch = 1
        params.type_k, params.type_v = self._order.type_k, self._order.type_v
        if self._order.flash is not None:
            params.flash_attn = self._order.flash
        context = self._lib.llama_init_from_model(model, params)
        if not context:
            return TrialResult(f"no context can be made: {self._reason()}")
        if code := self._lib.llama_decode(context, self._batch()):
            return TrialResult(f"a forward fails with {code}: {self._reason()}")
        return TrialResult()

    def _batch(self) -> Any:
        batch = self._api.llama_batch_init(_TOKENS, 0, 1)
        batch.n_tokens = _TOKENS
        for i in range(_TOKENS):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = 0, i, 1, True
            batch.seq_id[i][0] = 0
        return batch


def main() -> int:
    """Print the result on what the first argument, an Order as JSON, names."""
    leave_no_core()
    return answer(asdict(_Trial(Order(**json.loads(sys.argv[1]))).run()))


if __name__ == "__main__":
    sys.exit(main())
