"""The check at load of a model that is too large for all of it: its first blocks tell the rest.

There not only rows are compared but everything that was computed for a token. What was compared on the whole model goes
before: a width that differed there is none of the lane. Where the whole model had no time for a width at all, its first
blocks alone speak; the certificate compares more.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import cast

from pilotfish.hooks.errors import PilotfishError
from pilotfish.hooks.types import EngineOptions, EngineSetting, TargetPin
from pilotfish.manifests.first_blocks import FirstBlocks, first_blocks
from pilotfish.plugins._cells.context import CellContext
from pilotfish.plugins._cells.dialect import Dialect
from pilotfish.plugins._cells.lane_check import LaneCheck, allowed_seconds, cells_agree, check, padding_pays
from pilotfish.plugins._cells.watched_context import WatchedContext

log = logging.getLogger("pilotfish.verifiers")

CELLS = 1024  # of context that the first blocks get, unless the model has fewer
PADDING_SECONDS = 1.0
TIMES = (
    3.0  # the seconds of an ordinary check: a result that is whole is remembered, one that is not is waited for again
)


def looked_at_further(
    dialect: Dialect,
    whole: CellContext,
    pin: TargetPin,
    setting: EngineSetting,
    options: EngineOptions,
    candidates: Collection[int],
    found: LaneCheck,
) -> LaneCheck:
    """`found`, which the `whole` model had no time to complete, with what its first blocks show besides.

    It stays as it is where they cannot be made or loaded, or show less. Clears the whole model's cache.
    """

    def pays() -> bool:
        return padding_pays(whole, time.monotonic, time.monotonic() + PADDING_SECONDS)

    with first_blocks(pin, options.state_dir) as part:
        if part is None:
            return found
        try:
            with dialect.aside(), _context(dialect, part, setting, options, whole) as context:
                experts = dialect.experts(pin) > 0
                budget = TIMES * allowed_seconds()
                seen = check(context, candidates, budget=budget, experts=experts, padding_pays=pays)
        except (PilotfishError, OSError) as error:
            log.warning("%s: its first blocks tell nothing: %s", pin.name, error)
            return found
    less = seen.max_context is not None or len(seen.widths) <= len(found.widths)
    if len(seen.widths) == 1 or (less and not seen.complete):
        return found
    log.info("%s: the first %d of %d blocks: widths %s", pin.name, part.kept, part.blocks, seen.widths)
    further = found.told_by(seen)
    if further.exact_cache and not cells_agree(whole, further.widths):  # few blocks may hide it
        return replace(further, exact_cache=False, reason="cells written by narrow blocks differ in the whole model")
    return further


@contextlib.contextmanager
def _context(
    dialect: Dialect, part: FirstBlocks, setting: EngineSetting, options: EngineOptions, whole: CellContext
) -> Iterator[CellContext]:
    options = replace(options, n_ctx=min(CELLS, whole.cells), slots=1, state_dir=None)  # nothing to remember of it
    model = dialect.open(part.pin, setting, options)
    try:
        context, watch = model.watched(setting, options, whole.max_width)
        try:
            yield cast(CellContext, WatchedContext(context, watch))
        finally:
            context.close()
    finally:
        model.close()
