"""Loading a GGUF: parameters in, a model and a context out, or an error that names the file and the remedy."""

from __future__ import annotations

import ctypes
import logging
import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from pilotfish.hooks.errors import BrokenModel, EngineError
from pilotfish.hooks.types import EngineOptions, EngineSetting, TargetPin
from pilotfish.plugins._cells.context import CellContext
from pilotfish.plugins._cells.forward_watch import ForwardWatch
from pilotfish.plugins._cells.setting import CACHE_TYPES, CELL_BLOCK, cache_type, default_threads
from pilotfish.plugins._llama.context import LlamaContext
from pilotfish.plugins._llama.library import last_words, lib
from pilotfish.plugins._llama.sequences import is_running, open_sequences

if TYPE_CHECKING:
    from pilotfish.plugins._llama.far_ends import FarEnds

log = logging.getLogger("pilotfish.verifiers")

BLOCK_ROOM = 16  # rows of logits a context has room for at least; no lane found at load is wider


STOCK = EngineSetting("f16", "f16", None)


def exact_setting(options: EngineOptions) -> EngineSetting:
    """What the launch asked for, and the setting in which most widths agree for the rest.

    Caches of two different types keep every width on the same attention code (measured on CPU: bit-equal
    rows for widths 1 to 65, at stock's speed). A launch without flash attention is left as stock has it.
    """
    flash = options.flash_attention is not False
    if options.cache_type_k or options.cache_type_v or not flash:
        return EngineSetting(options.cache_type_k or "f16", options.cache_type_v or "f16", flash)
    return EngineSetting("bf16", "f16", True)


def load_model(pin: TargetPin, setting: EngineSetting, options: EngineOptions, far_ends: FarEnds | None = None) -> Any:
    """The `llama_model`, spread over `far_ends` if there are any. Raises BrokenModel when libllama refuses the file or
    cannot generate with it, and where its memory or theirs does not suffice."""
    params = lib.llama_model_default_params()
    params.use_extra_bufts = setting.repack
    if options.gpu_layers is not None:
        params.n_gpu_layers = options.gpu_layers
    if options.main_gpu is not None and lib.llama_supports_gpu_offload():
        params.split_mode, params.main_gpu = lib.LLAMA_SPLIT_MODE_NONE, options.main_gpu
    if not options.use_mmap:
        params.load_mode = lib.LLAMA_LOAD_MODE_NONE
    if far_ends is not None:
        far_ends.put_into(params)
    last_words()
    with far_ends.called() if far_ends else nullcontext():
        model = _open_files([os.fsencode(weight.path) for weight in pin.weights], params)
    if not model and far_ends is not None:
        places = ", ".join(far_ends.endpoints)
        remedy = "give them more memory, or share the layers out otherwise (tensor_split)"
        raise EngineError(f"{pin.name}: libllama cannot load {pin.path} over {places}: {last_words()}; {remedy}")
    if not model:
        raise BrokenModel(f"{pin.name}: libllama cannot load {pin.path}: {last_words()}; {_remedy(pin)}")
    if lib.llama_model_has_encoder(model) or not lib.llama_model_has_decoder(model):
        lib.llama_model_free(model)
        raise BrokenModel(f"{pin.name}: {pin.path} is not a decoder-only text model; {_remedy(pin)}")
    return model


def _open_files(paths: list[bytes], params: Any) -> Any:
    if len(paths) == 1:
        return lib.llama_model_load_from_file(paths[0], params)
    array = (ctypes.c_char_p * len(paths))(*paths)
    return lib.llama_model_load_from_splits(array, len(paths), params)


def _remedy(pin: TargetPin) -> str:
    return f"pull {pin.name} again, or leave this model to the stock server"


def make_context(
    model: Any,
    pin: TargetPin,
    setting: EngineSetting,
    options: EngineOptions,
    width: int,
    *,
    swa_full: bool = False,
    snapshots: int = 0,
    watch: ForwardWatch | None = None,
) -> LlamaContext:
    """A context of one sequence; see `make_sequences`."""
    made = make_sequences(model, pin, setting, options, width, 1, swa_full=swa_full, snapshots=snapshots, watch=watch)
    return made[0]


def make_sequences(
    model: Any,
    pin: TargetPin,
    setting: EngineSetting,
    options: EngineOptions,
    width: int,
    sequences: int,
    *,
    swa_full: bool = False,
    snapshots: int = 0,
    watch: ForwardWatch | None = None,
) -> list[LlamaContext]:
    """A context of so many sequences with room for blocks of `width` rows in all. Raises EngineError.

    With `swa_full` the layers of a sliding window keep all cells, so that any prefix can be kept. Of running states
    `snapshots` are kept, where the library knows how to. `watch`, which must live as long, sees every forward.
    """
    params = lib.llama_context_default_params()
    threads = options.threads or default_threads()
    # libllama rounds the cells up to this but limits a batch to what was asked for, and aborts on a longer one
    params.n_ctx = sequences * -(-options.n_ctx // CELL_BLOCK) * CELL_BLOCK
    params.n_batch = params.n_ubatch = max(options.batch_size, width)
    params.n_threads = params.n_threads_batch = threads
    params.n_seq_max = sequences
    params.kv_unified = False
    params.swa_full = swa_full
    params.n_rs_seq = snapshots
    params.n_outputs_max = width
    params.n_outputs_max_per_seq = width
    params.type_k = cache_type(pin, setting.cache_type_k, CACHE_TYPES)
    params.type_v = cache_type(pin, setting.cache_type_v, CACHE_TYPES)
    params.flash_attn_type = _FLASH[setting.flash_attention]
    if watch is not None:
        params.cb_eval = watch.callback
    return open_sequences(model, params, pin.name, width)


_FLASH = {
    None: lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
    True: lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    False: lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}


def cuts_its_tail(model: Any, context: CellContext) -> str:
    """Empty when the cache can give up its last cells, otherwise why not. Found out by trying; clears the cache.

    One that cannot be cut may take a block back whole.
    """
    if is_running(model) and lib.llama_model_n_swa(model) > 0:
        return "its memory has windows and running states, which are not cut together here"
    bos = max(0, lib.llama_vocab_bos(lib.llama_model_get_vocab(model)))
    if context.memory.restores:
        return _takes_blocks_back(context, bos) if context.max_width > 1 else ""
    context.feed([bos, bos])
    cut = context.cut(1)
    context.clear()
    return "" if cut else "its memory cannot cut its tail (recurrent or hybrid)"


def _takes_blocks_back(context: CellContext, bos: int) -> str:
    try:
        context.feed([bos])
        context.forward([bos], 2)
        back = context.cut(1)
    except EngineError as error:
        log.warning("%s", error)
        back = False
    context.clear()
    return "" if back else "its memory cannot cut its tail, and its state cannot be written back"
