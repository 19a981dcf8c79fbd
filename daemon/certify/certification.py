"""Certification of a model on this machine: what the command and the idle certifier both do."""

from __future__ import annotations

from pathlib import Path

import psutil

from pilotfish.daemon.certify.certificate import Certificate, CertificateStore, identity_for
from pilotfish.daemon.certify.certifier import BUDGET, CertificationTask, Certifier, Progress
from pilotfish.daemon.certify.lanes import MAX_WIDTH
from pilotfish.daemon.certify.left_to_stock import LeftToStock
from pilotfish.daemon.certify.probe_driver import Deadline
from pilotfish.daemon.certify.probe_process import RemoteProbe
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import Verifier
from pilotfish.hooks.sample_text import SAMPLE
from pilotfish.hooks.types import EngineOptions, EngineSetting, Parity, TargetPin

MEMORY_FACTOR = 2.5  # model sizes that must be free to hold it twice: weights may be repacked, caches come on top


def certify(
    pin: TargetPin,
    verifier: Verifier,
    options: EngineOptions,
    *,
    parity: Parity = Parity.LANE,
    budget: float = BUDGET,
    progress: Progress = lambda what: None,
) -> tuple[Certificate, Path | None]:
    """Certify `pin` and keep the certificate under `options.state_dir`; the certificate and its file, None if not kept.

    Raises EngineError when the verifier offers no probe or the model does not load.
    """
    identity = identity_for(pin, verifier, options, parity)
    if identity is None:
        raise EngineError(f"{pin.name}: the verifier {verifier.name!r} offers no probe, so it cannot be certified")
    deadline = Deadline(budget)

    def open_probe(setting: EngineSetting, until: Deadline) -> RemoteProbe:
        return RemoteProbe(pin, setting, MAX_WIDTH, options, until)

    task = CertificationTask(identity, pin.name, options, verifier.name, SAMPLE, keep_stock=has_room_twice(pin))
    certificate = Certifier(task, open_probe, budget=budget, deadline=deadline, progress=progress).run()
    kept = CertificateStore(options.state_dir).put(certificate) if certificate.conclusive else None
    if kept:
        LeftToStock(options.state_dir, pin.path).forget()
    return certificate, kept


def has_room_twice(pin: TargetPin) -> bool:
    """Whether the model may be loaded twice at once."""
    size = sum(weight.size for weight in pin.weights)
    return bool(psutil.virtual_memory().available > MEMORY_FACTOR * size)
