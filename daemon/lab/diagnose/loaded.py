"""A diagnosis on the real engines: each setting in a process of its own."""

from __future__ import annotations

from pathlib import Path

from pilotfish.daemon.certify.lanes import MAX_WIDTH
from pilotfish.daemon.certify.probe_driver import Deadline
from pilotfish.daemon.certify.probe_process import RemoteProbe
from pilotfish.daemon.certify.reproductions import Reproduction
from pilotfish.daemon.certify.task import Progress
from pilotfish.daemon.lab.diagnose.diagnosing import ROOM, Diagnosing
from pilotfish.hooks.types import EngineOptions, EngineSetting, TargetPin

_CELLS = 256  # a context is as many of these as it takes


def diagnosing_of(
    asked: Reproduction, pin: TargetPin, budget: float, progress: Progress, state_dir: Path | None
) -> Diagnosing:
    """The diagnosis of `asked` on `pin`, loaded as the reproduction says."""
    needed = -(-(len(asked.prefix) + ROOM) // _CELLS) * _CELLS
    options = EngineOptions(
        n_ctx=max(needed, asked.n_ctx or 0), threads=asked.threads, batch_size=asked.batch_size, state_dir=state_dir
    )
    rounds = (round.width for round in asked.rounds)
    widest = max(MAX_WIDTH, asked.plain.width, asked.other.width, *rounds)

    def open_probe(setting: EngineSetting, deadline: Deadline) -> RemoteProbe:
        return RemoteProbe(pin, setting, widest, options, deadline)

    diagnosing = Diagnosing(asked, open_probe, Deadline(budget), options, progress)
    here = {weight.digest for weight in pin.weights}
    if asked.weights and not here.issubset(asked.weights):
        diagnosing.notes.append(f"{pin.name} has other weights here than those it was seen with")
    return diagnosing
