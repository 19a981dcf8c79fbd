"""Which engine settings are worth measuring, in which order.

Measured on x86-64 CPUs: caches of two types keep every width on the same attention code at
no cost; which code multiplies weights depends on the width for K-quants and F16, and on repacking and the tiled
kernels for K-quants.
"""

from __future__ import annotations

from pilotfish.daemon.certify.lanes import MAX_WIDTH, setting_name
from pilotfish.hooks.types import EngineOptions, Lane

ALL_WIDTHS = tuple(range(1, MAX_WIDTH + 1))

MIXED_CACHES = (("bf16", "f16"), ("q8_0", "f16"), ("f16", "bf16"), ("q8_0", "q8_0"))
UNTILED = (("GGML_CPU_TILED_MM", "0"),)
WEIGHTS = ((True, ()), (False, UNTILED), (True, UNTILED), (False, ()))  # repacked?, environment


def stock_setting(options: EngineOptions) -> Lane:
    """What stock would run with after this launch: what was asked for, and f16 caches and the engine's choice else."""
    return _setting(options.cache_type_k or "f16", options.cache_type_v or "f16", options.flash_attention)


def candidates(options: EngineOptions, *, weights_first: bool) -> list[Lane]:
    """Settings that keep to what the launch asked for, the likeliest first, stock's own not among them.

    The first is the same either way; then come its variants of weight products, or the other caches.
    """
    asked = options.cache_type_k or options.cache_type_v
    own = (options.cache_type_k or "f16", options.cache_type_v or "f16")
    caches = (own,) if asked or options.flash_attention is False else MIXED_CACHES
    flash = options.flash_attention is not False
    first = [_setting(*caches[0], flash, repack, environment) for repack, environment in WEIGHTS]
    others = [_setting(*pair, flash) for pair in caches[1:]]
    found = [first[0], *(first[1:] + others if weights_first else others + first[1:])]
    if options.flash_attention is None:
        found.append(_setting(*own, False))
    stock = setting_name(stock_setting(options))
    return [setting for setting in found if setting_name(setting) != stock]


def _setting(
    k: str, v: str, flash: bool | None, repack: bool = True, environment: tuple[tuple[str, str], ...] = ()
) -> Lane:
    lane = Lane("", ALL_WIDTHS, k, v, flash, repack, environment=environment)
    return Lane(setting_name(lane), ALL_WIDTHS, k, v, flash, repack, environment=environment)
