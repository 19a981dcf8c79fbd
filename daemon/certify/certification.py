"""Certification of a model on this machine: what the command and the idle certifier both do."""

from __future__ import annotations

import logging
from pathlib import Path

import psutil

from pilotfish.daemon.certify.certificate import Certificate, CertificateStore, Identity, identity_of
from pilotfish.daemon.certify.certifier import BUDGET, Certifier, Progress, Task
from pilotfish.daemon.certify.probe_driver import Deadline
from pilotfish.daemon.certify.probe_process import RemoteProbe
from pilotfish.daemon.lab.workloads import load_workloads
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import CertifiableVerifier, Verifier
from pilotfish.hooks.types import EngineOptions, Lane, TargetPin

log = logging.getLogger("pilotfish.certifier")

MEMORY_FACTOR = 2.5  # model sizes that must be free to hold it twice: weights may be repacked, caches come on top


def certify(
    pin: TargetPin,
    verifier: Verifier,
    options: EngineOptions,
    *,
    parity: str = "lane",
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

    def open_probe(setting: Lane, until: Deadline) -> RemoteProbe:
        return RemoteProbe(pin, setting, options, until, verifier.name)

    task = Task(identity, pin.name, options, [w.prompt for w in load_workloads()], keep_stock=has_room_twice(pin))
    certificate = Certifier(task, open_probe, budget=budget, deadline=deadline, progress=progress).run()
    kept = CertificateStore(options.state_dir).put(certificate) if certificate.conclusive else None
    return certificate, kept


def identity_for(pin: TargetPin, verifier: Verifier, options: EngineOptions, parity: str) -> Identity | None:
    """The identity of loading `pin` with `verifier`; None when its models cannot be certified."""
    if not isinstance(verifier, CertifiableVerifier):
        return None
    return identity_of(pin, verifier.fingerprint(options.state_dir), options, parity)


def has_room_twice(pin: TargetPin) -> bool:
    """Whether the model may be loaded twice at once."""
    size = sum(weight.size for weight in pin.weights)
    return bool(psutil.virtual_memory().available > MEMORY_FACTOR * size)
