"""The memory beside one loaded target: what is free, and admission and pressure for drafters."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence

from pilotfish.daemon.drafters.admission import TargetMemory, admit, pressed
from pilotfish.daemon.drafters.memory_bounds import CPU, Bound, bounds_for, no_figures, private_bytes
from pilotfish.hooks.protocols import TellsFootprint, TellsMemory, Verifier
from pilotfish.hooks.types import EngineOptions, Footprint, TargetPin

CHECK_EVERY = 1.0  # seconds; requests may come faster than memory changes


class MemoryBudget:
    """Made per loaded target. Safe from any thread.

    `target` is asked by the first drafter that has something to load: reading a model's header takes 40 ms, which
    a target without such drafters does not spend at its start.
    """

    def __init__(
        self,
        target: Callable[[], TargetMemory],
        bounds: Callable[[str], Sequence[Bound]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._bounds = bounds
        self._clock = clock
        self._checked = (-CHECK_EVERY, "")

    def admit(self, drafter: str, footprint: Footprint, others: Sequence[Footprint]) -> None:
        """Return if there is room beside `others`, which are loaded. Raises AdmissionRefused with the sum."""
        admit(drafter, footprint, self._target(), self._bounds(footprint.device), others=others)

    def free(self, device: str = CPU) -> int:
        """Bytes of `device` that the target will not ask for; drafters that are loaded are not looked at."""
        bounds = self._bounds(device)
        pending = self._target().pending
        return min((max(0, bound.available - (pending if bound.lends else 0)) for bound in bounds), default=0)

    def pressed(self, loaded: Sequence[Footprint]) -> str:
        """Why the loaded drafters must give their memory back; empty while they need not. Looks once a second."""
        now = self._clock()
        at, why = self._checked
        if now - at >= CHECK_EVERY:
            devices = {footprint.device for footprint in loaded} or {self._target().device}
            found = (pressed(self._target(), self._bounds(device), others=loaded) for device in devices)
            why = next(filter(None, found), "")
            self._checked = (now, why)
        return why


def memory_budget_for(pin: TargetPin, verifier: Verifier, options: EngineOptions, before: int) -> MemoryBudget:
    """The memory beside `pin`, which `verifier` has loaded; `before` is what `private_bytes()` said ahead of that.

    A verifier that cannot say what its target takes is believed to take what its weights weigh, and no cache.
    """
    taken = max(0, private_bytes() - before)
    figures = verifier.memory if isinstance(verifier, TellsMemory) else no_figures

    @functools.cache
    def target() -> TargetMemory:
        needs = (
            verifier.footprint(pin, options)
            if isinstance(verifier, TellsFootprint)
            else Footprint(sum(weight.size for weight in pin.weights), 0)
        )
        return TargetMemory(pin.name, needs.weights, needs.cache, taken, needs.device)

    return MemoryBudget(target, lambda device: bounds_for(device, target().device, figures))
