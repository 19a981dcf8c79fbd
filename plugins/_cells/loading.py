"""Loading a target: the weights, a context, and the lane that real forwards show to be safe."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, EnginePin, EngineSetting, Lane, Parity, TargetPin
from pilotfish.manifests.remembered import Remembered, stamp_of
from pilotfish.plugins._cells.cell_memory import CELLS
from pilotfish.plugins._cells.context import CellContext
from pilotfish.plugins._cells.dialect import Dialect, Model
from pilotfish.plugins._cells.engine import CellEngine
from pilotfish.plugins._cells.joint_check import NoTimeLeft, Together, check_together
from pilotfish.plugins._cells.joint_forward import JointForward, joint_forward
from pilotfish.plugins._cells.lane_check import PADDED, LaneCheck, check
from pilotfish.plugins._cells.part_check import looked_at_further
from pilotfish.plugins._cells.setting import default_threads
from pilotfish.plugins._cells.slot import CellSlot
from pilotfish.plugins._cells.width_costs import width_costs

log = logging.getLogger("pilotfish.verifiers")

CHECK = 2  # counted up when a check compares more than those that are remembered

NO_SNAPSHOTS = "there is no room for snapshots of its running state"
NO_PADDING = "its memory cannot cut the padding of plain steps"
REFUSED = "a context for wider forwards was refused: there may be too little memory"
BESIDE = 128  # tokens of a prompt block where others may be answered, who get one token for each (docs/lab-notes.md)


def load(dialect: Dialect, pin: TargetPin, lane: Lane | None, options: EngineOptions) -> CellEngine:
    """Load `pin`; without a lane, find one. Raises BrokenModel or EngineError, naming the model."""
    setting = lane.setting if lane else dialect.exact_setting(options)
    if lane is None:
        options = replace(options, batch_size=dialect.prompt_block(options))
    model = dialect.open(pin, setting, options)
    contexts: Sequence[CellContext] = ()
    joint: JointForward | None = None
    try:
        contexts, setting = _contexts(dialect, model, pin, setting, lane, options)
        build = dialect.engine_pin(options.state_dir)
        obstacle, experts = model.obstacle(contexts[0]), dialect.experts(pin)
        fact = _lane_fact(contexts[0], pin, setting, options, build, experts)
        if lane is None:
            found = _find_lane(dialect, contexts[0], pin, setting, options, obstacle, fact, experts)
            lane = _lane(found, setting, options)
        else:
            lane = _narrowed(lane, obstacle, contexts[0], setting)
        block = lane.prefill_block or options.batch_size
        if len(contexts) > 1:
            block = min(block, BESIDE)
        slots = [_slot(one, block, lane, can_rollback=not obstacle) for one in contexts]
        alone = obstacle or contexts[0].memory.restores  # what was taken back is forwarded again, alone
        joint = None if alone else joint_forward(contexts, contexts[0].max_width)
        together = _together(joint, contexts, pin, lane, options, fact) if joint else {}
        return CellEngine(
            model,
            lane,
            build,
            slots,
            joint=joint,
            together=together,
            similarity=options.slot_similarity,
            identity=f"{fact} {len(contexts)} slots {contexts[0].cells} cells",
            costs=width_costs(contexts[0], lane.widths) if options.far_ends and not alone else (),
        )
    except BaseException:
        if joint is not None:
            joint.close()
        for context in contexts:
            context.close()
        model.close()
        raise


def _slot(context: CellContext, block: int, lane: Lane, *, can_rollback: bool) -> CellSlot:
    return CellSlot(context, block, exact=lane.exact_cache, can_rollback=can_rollback, widths=lane.widths)


def _contexts(
    dialect: Dialect, model: Model, pin: TargetPin, setting: EngineSetting, lane: Lane | None, options: EngineOptions
) -> tuple[Sequence[CellContext], EngineSetting]:
    """Contexts in `setting`. Where the device or its memory refuses them: in stock's, if nobody asked for a setting and
    no lane says otherwise, or for single steps only. Raises what the first attempt did where all are refused."""
    width = max(dialect.room, lane.max_width if lane else 0)
    if lane is not None and lane.prefill_block:
        options = replace(options, batch_size=max(options.batch_size, lane.prefill_block))
    back = lane.max_width if lane else max(dialect.candidates(pin))
    first: EngineError | None = None
    for other, rows in _ways(dialect, setting, lane, options, width):
        try:
            found = model.contexts(other, options, rows, min(rows, back))
        except EngineError as error:
            first = first or error
            continue
        if first is not None:
            what = "stock settings" if other != setting else "single steps"
            log.warning("%s: a context is refused here (%s); %s instead: %s", pin.name, setting.title, what, first)
        return found, other
    assert first is not None
    raise first


def _ways(
    dialect: Dialect, setting: EngineSetting, lane: Lane | None, options: EngineOptions, width: int
) -> list[tuple[EngineSetting, int]]:
    """Settings and widest forwards to try, the best first."""
    asked = (options.cache_type_k, options.cache_type_v, options.flash_attention)
    stock = dialect.fallback() if all(value is None for value in asked) else None
    if stock is None:
        return [(setting, width), (setting, 1)]
    return [(setting, width), *([(stock, width)] if lane is None else []), (setting, 1), (stock, 1)]


def _together(
    joint: JointForward,
    contexts: Sequence[CellContext],
    pin: TargetPin,
    lane: Lane,
    options: EngineOptions,
    fact: str,
) -> Together:
    """How many sequences may share a forward of each width: by the check, or as it was remembered."""
    remembered, stamp = Remembered(options.state_dir), stamp_of(pin.path)
    decides = [len(contexts), joint.capacity, list(lane.widths)]
    fact = f"together {decides} {fact}"
    if (known := _as_together(remembered.get(pin.path, fact, stamp), lane, len(contexts))) is not None:
        return known
    try:
        found = check_together(joint, contexts, lane.widths)
    except NoTimeLeft as ended:
        log.warning("%s: the check of its slots ran out of time; by width share a forward: %s", pin.name, ended.found)
        return ended.found
    except EngineError as error:
        log.warning("%s: its slots share no forward, because the check of that failed: %s", pin.name, error)
        return {}
    remembered.put(pin.path, fact, stamp, sorted(found.items()))
    log.info("%s: of %d slots share a forward, by width: %s", pin.name, len(contexts), found or "none")
    return found


def _as_together(value: Any, lane: Lane, slots: int) -> Together | None:
    try:
        known = {int(width): int(many) for width, many in value}
    except (TypeError, ValueError):
        return None
    return known if all(width in lane.widths and 1 < many <= slots for width, many in known.items()) else None


def _find_lane(
    dialect: Dialect,
    context: CellContext,
    pin: TargetPin,
    setting: EngineSetting,
    options: EngineOptions,
    obstacle: str,
    fact: str,
    experts: int,
) -> LaneCheck:
    if obstacle:
        return LaneCheck((1,), False, obstacle)
    candidates = [width for width in context.memory.widths(dialect.candidates(pin)) if width <= context.max_width]
    if not candidates:
        return LaneCheck((1,), False, NO_SNAPSHOTS if context.max_width > 1 else REFUSED)
    remembered, stamp = Remembered(options.state_dir), stamp_of(pin.path)
    alone = dialect.one_row_differs(pin)
    fact += " padded" if alone else ""
    if (known := _as_check(remembered.get(pin.path, fact, stamp), dialect.room)) is not None:
        return known
    divided = not alone and dialect.on_processor(options) and not context.memory.restores
    afar = bool(options.far_ends)
    found = check(context, candidates, experts=experts > 0, alone=alone, afar=afar, hurried=divided and not afar)
    if divided and not found.complete and not afar:
        found = looked_at_further(dialect, context, pin, setting, options, candidates, found)
    if found.complete:
        remembered.put(pin.path, fact, stamp, asdict(found))
    log.info("%s: widths %s in %s %s", pin.name, found.widths, setting.title, found.reason)
    return found


def _lane_fact(
    context: CellContext,
    pin: TargetPin,
    setting: EngineSetting,
    options: EngineOptions,
    build: EnginePin,
    experts: int,
) -> str:
    """What a check is remembered as: whatever decides which code computes, so that any change means a new check."""
    weights = [(weight.digest, weight.size, weight.path.stat().st_mtime_ns) for weight in pin.weights]
    environment = sorted((name, value) for name, value in os.environ.items() if name.startswith("GGML_"))
    threads = options.threads or default_threads()
    long_enough = context.cells > 256
    decides = [
        CHECK,
        weights,
        build.fingerprint,
        asdict(setting),
        threads,
        options.gpu_layers,
        environment,
        long_enough,
    ]
    if context.memory != CELLS:
        decides.append(asdict(context.memory))
    if experts:
        decides.append(["experts", experts])
    if options.main_gpu is not None:
        decides.append(options.main_gpu)
    if options.far_ends:
        decides.append(["far ends", *options.far_ends, options.tensor_split])
    return f"lane {hashlib.sha256(json.dumps(decides).encode()).hexdigest()}"


def _as_check(value: Any, room: int) -> LaneCheck | None:
    try:
        widths, most = tuple(value["widths"]), value.get("max_context")
        known = LaneCheck(widths, bool(value["exact_cache"]), str(value["reason"]), max_context=most)
    except (TypeError, KeyError, AttributeError):
        return None
    if most is not None and type(most) is not int:
        return None
    plausible = widths[:1] in ((1,), (PADDED,)) and all(isinstance(w, int) and 1 <= w <= room for w in widths)
    return known if plausible else None


def _lane(found: LaneCheck, setting: EngineSetting, options: EngineOptions) -> Lane:
    return Lane(
        name=setting.title,
        widths=found.widths,
        setting=setting,
        parity=Parity.LANE if len(found.widths) > 1 else Parity.NONE,
        reason=found.reason,
        prefill_block=options.batch_size,
        exact_cache=found.exact_cache,
        max_context=found.max_context,
    )


def _narrowed(lane: Lane, obstacle: str, context: CellContext, setting: EngineSetting) -> Lane:
    """The lane as given, as wide as the memory leads back, or single steps in `setting`."""
    widths, why = context.memory.widths(lane.widths), obstacle
    if not why and (setting != lane.setting or context.max_width < lane.max_width):
        why = REFUSED
    elif not why and len(widths) < min(2, len(lane.widths)):
        why = NO_SNAPSHOTS
    elif not why and context.memory.restores and lane.widths[0] > 1:
        why = NO_PADDING
    if not why:
        return replace(lane, widths=widths)
    name = setting.title if setting != lane.setting else lane.name
    return replace(lane, name=name, setting=setting, widths=(1,), parity=Parity.NONE, reason=why, exact_cache=False)
