"""`python -m pilotfish.daemon.certify.background`: one certification at the lowest priority, ended with its parent.

The first line on stdin is the job; when stdin ends, because the runner killed this process's work or died, so does
the process, and with it the probe it had started.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

from pilotfish.daemon.certify.certificate import CertificateStore, identity_for
from pilotfish.daemon.certify.made_again import MadeAgain
from pilotfish.daemon.certify.probe_wire import options_from_json, options_to_json, pin_from_json, pin_to_json
from pilotfish.daemon.config import files
from pilotfish.daemon.processes.parent_death import end_with_stdin
from pilotfish.daemon.registry.chosen_verifier import fit_verifiers
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import PilotfishError
from pilotfish.hooks.types import EngineOptions, Parity, TargetPin

log = logging.getLogger("pilotfish.certifier")

MODULE = "pilotfish.daemon.certify.background"
OUT_OF_TIME = 3  # the exit code where time ran out before a lane was found, or that there is none
NICENESS = 19


def job_line(pin: TargetPin, options: EngineOptions, parity: Parity, engines: Sequence[str], budget: float) -> str:
    """What the process reads first; `engines` are the verifiers to choose from, `budget` is in seconds."""
    job = {"pin": pin_to_json(pin), "options": options_to_json(options), "parity": parity, "engines": list(engines)}
    return json.dumps({**job, "budget": budget}) + "\n"


def main() -> int:
    """Certify; the exit code is 0 when a certificate was written, and OUT_OF_TIME where more time may bring one."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    job = json.loads(sys.stdin.readline())
    end_with_stdin()
    try:
        return _certify(job)
    except PilotfishError as error:
        log.warning("no certificate: %s", error)
        return 1


def _certify(job: dict[str, Any]) -> int:
    from pilotfish.daemon.certify.certification import (
        certify,  # numpy and more: not for the runner, which imports this module
    )

    pin, options = pin_from_json(job["pin"]), options_from_json(job["options"])
    config = files.load_or_last_good()
    verifiers = fit_verifiers(Registry.load(config), job["engines"], options)
    apart = config.for_model(pin.name).engine.prompts == "fast"
    parity = Parity(job["parity"])
    identity = identity_for(pin, verifiers, options, parity)
    known = CertificateStore(options.state_dir).find(identity) if identity else None
    try:
        certificate, path = certify(
            pin, verifiers, options, parity=parity, budget=job["budget"], prompts_apart=apart, known=known
        )
    finally:
        if known and known.cut_short:
            MadeAgain(options.state_dir, pin.path, known.identity.key).tried()
    log.info("%s: %s: %s", certificate.model, "certified" if path else "not certified", certificate.summary())
    if path:
        return 0
    return OUT_OF_TIME if known is None and not certificate.conclusive else 1  # a known one's tries are counted above


if __name__ == "__main__":
    sys.exit(main())
