"""Greedy answers of a model that is split over far ends, by llama-cpp-python alone: what pilotfish's are compared with.

Nothing of pilotfish's engine takes part: the library's own calls, one sequence, every token a step. Prompts are read in
one block but for their last token, which is the first step, as everywhere.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import EngineError

_TYPES = {"f32": 0, "f16": 1, "q8_0": 8, "bf16": 30}  # ggml_type
_FLASH = {None: -1, False: 0, True: 1}  # llama_flash_attn_type
_LAYERS = 999  # all of them


class SplitAlone:
    """The model at `path`, its layers on `endpoints`. `setting` names cache types and flash attention as a lane's does.

    One process can have one. Raises EngineError.
    """

    def __init__(
        self,
        path: Path,
        endpoints: Sequence[str],
        setting: Mapping[str, Any],
        *,
        context: int,
        block: int,
        threads: int,
    ) -> None:
        from llama_cpp import llama_cpp

        self._lib: Any = llama_cpp
        self._quiet = llama_cpp.llama_log_callback(lambda level, text, user_data: None)
        llama_cpp.llama_log_set(self._quiet, None)
        llama_cpp.llama_backend_init()
        self._devices, self._held = _connected(Path(llama_cpp._base_path), endpoints)
        self._model = self._load(path, bool(setting["repack"]))
        self._context = self._begin(setting, context, block, threads)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self._n_vocab: int = llama_cpp.llama_vocab_n_tokens(self._vocab)
        self._batch = llama_cpp.llama_batch_init(block, 0, 1)

    def greedy(self, prompt: Sequence[int], most: int) -> list[int]:
        """The ids that follow `prompt`: `most` of them, or up to one that ends the text, that one included."""
        self._lib.llama_memory_clear(self._memory, True)
        given: list[int] = []
        self._forward(prompt[:-1], 0, logits=False)
        at, pending = len(prompt) - 1, prompt[-1]
        while len(given) < most:
            self._forward([pending], at, logits=True)
            at, pending = at + 1, self._best()
            given.append(pending)
            if self._lib.llama_vocab_is_eog(self._vocab, pending):
                break
        return given

    def _load(self, path: Path, repack: bool) -> Any:
        params = self._lib.llama_model_default_params()
        params.n_gpu_layers, params.use_extra_bufts = _LAYERS, repack
        params.split_mode = self._lib.LLAMA_SPLIT_MODE_LAYER
        params.devices = ctypes.cast(self._devices, ctypes.c_void_p)
        model = self._lib.llama_model_load_from_file(os.fsencode(path), params)
        if not model:
            raise EngineError(f"{path}: libllama alone cannot load it over these far ends; give them more memory")
        return model

    def _begin(self, setting: Mapping[str, Any], context: int, block: int, threads: int) -> Any:
        params = self._lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, block, block
        params.n_threads = params.n_threads_batch = threads
        params.type_k, params.type_v = _TYPES[setting["cache_type_k"]], _TYPES[setting["cache_type_v"]]
        params.flash_attn_type = _FLASH[setting["flash_attention"]]
        made = self._lib.llama_init_from_model(self._model, params)
        if not made:
            raise EngineError("libllama alone cannot make a context on these far ends; give them more memory")
        return made

    def _forward(self, ids: Sequence[int], at: int, *, logits: bool) -> None:
        batch = self._batch
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, at + i, 1, logits
            batch.seq_id[i][0] = 0
        if ids and self._lib.llama_decode(self._context, batch):
            raise EngineError("a forward of libllama alone failed")

    def _best(self) -> int:
        import numpy as np

        row = np.ctypeslib.as_array(self._lib.llama_get_logits_ith(self._context, 0), shape=(self._n_vocab,))
        return int(row.argmax())


def _connected(folder: Path, endpoints: Sequence[str]) -> tuple[Any, list[Any]]:
    """The devices of all far ends, in order, and what keeps the connections to them."""
    handle, size = ctypes.c_void_p, ctypes.c_size_t
    rpc, ggml = _library(folder, "libggml-rpc"), _library(folder, "libggml-base")
    rpc.ggml_backend_rpc_add_server.restype, rpc.ggml_backend_rpc_add_server.argtypes = handle, [ctypes.c_char_p]
    ggml.ggml_backend_reg_dev_count.restype, ggml.ggml_backend_reg_dev_count.argtypes = size, [handle]
    ggml.ggml_backend_reg_dev_get.restype, ggml.ggml_backend_reg_dev_get.argtypes = handle, [handle, size]
    ggml.ggml_backend_dev_init.restype, ggml.ggml_backend_dev_init.argtypes = handle, [handle, ctypes.c_char_p]
    devices = []
    for endpoint in endpoints:
        registry = rpc.ggml_backend_rpc_add_server(endpoint.encode())
        if not registry:
            raise EngineError(f"the far end {endpoint} has no device")
        count = ggml.ggml_backend_reg_dev_count(registry)
        devices += [ggml.ggml_backend_reg_dev_get(registry, i) for i in range(count)]
    held = [ggml.ggml_backend_dev_init(device, None) for device in devices]
    return (handle * (len(devices) + 1))(*devices, None), held


def _library(folder: Path, name: str) -> ctypes.CDLL:
    found = next((path for path in (folder / f"{name}.so", folder / f"{name}.dylib") if path.is_file()), None)
    if found is None:
        raise EngineError(f"{folder} holds no {name}; far ends need a libllama that was built with it")
    return ctypes.CDLL(str(found))
