"""Whether ik_llama.cpp may open a model in this process. It is tried in a process of its own first (see `trial`).

What was found is remembered until the file or the library changes.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import BrokenModel, EngineError
from pilotfish.hooks.types import EngineSetting, TargetPin
from pilotfish.manifests.remembered import Remembered, Stamp, stamp_of
from pilotfish.plugins._cells.setting import CACHE_TYPES, cache_type
from pilotfish.plugins._ik.build import fingerprint
from pilotfish.plugins._ik.child import ChildFailed, ask
from pilotfish.plugins._ik.trial import Order, TrialResult

IK_CACHE_TYPES = {name: kind for name, kind in CACHE_TYPES.items() if name != "bf16"}  # which end the process on AVX2

_seen: dict[tuple[str, tuple[int, ...]], TrialResult] = {}  # for those who have no state folder


def check_model(pin: TargetPin, setting: EngineSetting, state_dir: Path | None) -> None:
    """Raise BrokenModel or EngineError unless the library can compute `pin` in `setting`."""
    if pin.format != "gguf":
        raise EngineError(f"{pin.name} is a {pin.format} model, and ik_llama.cpp computes GGUFs; leave this one to mlx")
    if len(pin.weights) > 1:
        raise EngineError(f"{pin.name}: ik_llama.cpp opens models of one file; leave this one to libllama")
    key, value = (cache_type(pin, kind, IK_CACHE_TYPES) for kind in (setting.cache_type_k, setting.cache_type_v))
    _check(pin, Order(str(pin.path), key, value, setting.flash_attention), state_dir)


def check_vocabulary(pin: TargetPin, state_dir: Path | None) -> None:
    """Raise BrokenModel or EngineError unless the library can read the tokenizer of `pin`."""
    _check(pin, Order(str(pin.path), vocabulary=True), state_dir)


def _check(pin: TargetPin, order: Order, state_dir: Path | None) -> None:
    try:
        stamp = stamp_of(pin.path)
    except OSError as error:
        raise BrokenModel(f"{pin.name}: {pin.path} cannot be read: {error.strerror}; pull {pin.name} again") from error
    result = _result(pin, order, stamp, state_dir)
    if result.broken and order.vocabulary:
        raise BrokenModel(f"{pin.name}: {pin.path} has no vocabulary ({result.why}); use a complete GGUF")
    if result.broken:
        remedy = f"pull {pin.name} again, or leave this model to libllama"
        raise BrokenModel(f"{pin.name}: ik_llama.cpp cannot load {pin.path}: {result.why}; {remedy}")
    if result.why:
        raise EngineError(f"{pin.name}: not a model for ik_llama.cpp: {result.why}; leave this one to libllama")


def _result(pin: TargetPin, order: Order, stamp: Stamp, state_dir: Path | None) -> TrialResult:
    """Remembered, or found now. Raises EngineError when nothing was found out."""
    fact = f"ik {fingerprint(state_dir)} {json.dumps(asdict(order))}"
    remembered, key = Remembered(state_dir), (fact, tuple(stamp))
    if known := _seen.get(key) or _as_result(remembered.get(pin.path, fact, stamp)):
        return known
    try:
        found = TrialResult(**ask("pilotfish.plugins._ik.trial", json.dumps(asdict(order))))
    except ChildFailed as error:
        if not error.crash:
            raise EngineError(f"{pin.name}: ik_llama.cpp could not be tried on it: {error}; load it again") from error
        found = TrialResult(f"the library cannot open it without a crash ({error})")
    _seen[key] = found
    remembered.put(pin.path, fact, stamp, asdict(found))
    return found


def _as_result(value: Any) -> TrialResult | None:
    try:
        return TrialResult(str(value["why"]), bool(value["broken"]))
    except (TypeError, KeyError):
        return None
