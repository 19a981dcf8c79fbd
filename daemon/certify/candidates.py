"""Which engine settings are worth measuring, in which order.

Measured on x86-64 CPUs, with libllama: caches of two types keep every width on the same attention code at
no cost; which code multiplies weights depends on the width for K-quants and F16, and on repacking and the tiled
kernels for K-quants. With ik_llama.cpp all widths up to 31 agree in every number format while flash attention is off,
and with it all from 2 to 24, which is faster in long contexts where a plain step of two costs little more than one;
cache types stay what the launch asked for, and quantized values need flash attention. Of MLX nothing was measured but
processors, where it has one class of widths in either way to attend: its own operation, single products, and cells of
8 bits are tried in this order.
"""

from __future__ import annotations

from dataclasses import replace

from pilotfish.daemon.config.types import STOCK_ENGINE, TENSOR_ENGINE
from pilotfish.hooks.types import EngineOptions, EngineSetting

MIXED_CACHES = (("bf16", "f16"), ("q8_0", "f16"), ("f16", "bf16"), ("q8_0", "q8_0"))
UNTILED = (("GGML_CPU_TILED_MM", "0"),)
IK_PROMPT_BLOCK = 128  # no slower than 512 on a processor, and a next turn has less to read again
WEIGHTS = ((True, ()), (False, UNTILED), (True, UNTILED), (False, ()))  # repacked?, environment


def stock_setting(options: EngineOptions, engine: str) -> EngineSetting:
    """What stock would run with after this launch: what was asked for, and f16 caches and the engine's choice else.

    Another engine than stock's is measured against its own plain decoding in the one setting that is known to be exact.
    """
    if engine == TENSOR_ENGINE:
        return EngineSetting(*_caches(options), options.flash_attention is not False, engine=engine)
    if engine != STOCK_ENGINE:
        flash = bool(options.cache_type_k or options.cache_type_v) and options.flash_attention is not False
        return EngineSetting(*_caches(options), flash, engine=engine)
    return EngineSetting(*_caches(options), options.flash_attention, engine=engine)


def prompt_block(options: EngineOptions, engine: str) -> int:
    """Tokens that the engine is fed at once while it reads a prompt."""
    on_processor = engine not in (STOCK_ENGINE, TENSOR_ENGINE) and not options.gpu_layers
    return min(options.batch_size, IK_PROMPT_BLOCK) if on_processor else options.batch_size


def _caches(options: EngineOptions) -> tuple[str, str]:
    """The types of key and value caches that a launch leads to."""
    return options.cache_type_k or "f16", options.cache_type_v or "f16"


def candidates(options: EngineOptions, engine: str, *, weights_first: bool) -> list[EngineSetting]:
    """Settings that keep to what the launch asked for, the likeliest first; stock's own only where there is no other.

    The first is the same either way; then come its variants of weight products, or the other caches.
    """
    if engine == TENSOR_ENGINE:
        return _of_mlx(options)
    if engine != STOCK_ENGINE:
        plain = stock_setting(options, engine)
        with_flash = replace(plain, flash_attention=options.flash_attention is not False)
        return list(dict.fromkeys((plain, with_flash)))
    own = _caches(options)
    asked = options.cache_type_k or options.cache_type_v
    caches = (own,) if asked or options.flash_attention is False else MIXED_CACHES
    flash = options.flash_attention is not False
    first = [EngineSetting(*caches[0], flash, repack, environment, engine) for repack, environment in WEIGHTS]
    others = [EngineSetting(*pair, flash, engine=engine) for pair in caches[1:]]
    found = [first[0], *(first[1:] + others if weights_first else others + first[1:])]
    if options.flash_attention is None:
        found.append(EngineSetting(*own, False, engine=engine))
    stock = stock_setting(options, engine)
    return [setting for setting in found if setting != stock]


def _of_mlx(options: EngineOptions) -> list[EngineSetting]:
    plain = stock_setting(options, TENSOR_ENGINE)
    products = replace(plain, flash_attention=False)
    small = replace(plain, cache_type_k="q8_0", cache_type_v="q8_0")
    asked = options.cache_type_k or options.cache_type_v
    return list(dict.fromkeys((plain, products, *([] if asked else [small]))))
