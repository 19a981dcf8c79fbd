"""A diagnosis on the real engines: each setting in a process of its own."""

from __future__ import annotations

from pathlib import Path

from pilotfish.daemon.certify.probe_driver import Deadline
from pilotfish.daemon.certify.probe_process import RemoteProbe
from pilotfish.daemon.certify.reproductions import Reproduction
from pilotfish.daemon.certify.task import Progress
from pilotfish.daemon.lab.diagnose.diagnosing import Diagnosing
from pilotfish.daemon.lab.diagnose.replaying import room, widest
from pilotfish.hooks.types import EngineOptions, EngineSetting, TargetPin


def diagnosing_of(
    asked: Reproduction, pin: TargetPin, budget: float, progress: Progress, state_dir: Path | None
) -> Diagnosing:
    """The diagnosis of `asked` on `pin`, loaded as the reproduction says."""
    options = EngineOptions(
        n_ctx=max(len(asked.prefix) + room(asked), asked.n_ctx or 0),
        threads=asked.threads,
        batch_size=asked.batch_size,
        gpu_layers=asked.gpu_layers,
        state_dir=state_dir,
    )

    def open_probe(setting: EngineSetting, deadline: Deadline) -> RemoteProbe:
        return RemoteProbe(pin, setting, widest(asked), options, deadline)

    diagnosing = Diagnosing(asked, open_probe, Deadline(budget), options, progress)
    here = {weight.digest for weight in pin.weights}
    if asked.weights and not here.issubset(asked.weights):
        diagnosing.notes.append(f"{pin.name} has other weights here than those it was seen with")
    return diagnosing
