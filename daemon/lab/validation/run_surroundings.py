"""What a run holds for: the machine and the programs, the weights and the engine."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime

import psutil

from pilotfish import __version__
from pilotfish.daemon.certify.device import device_name
from pilotfish.daemon.lab.parity_subject import Subject
from pilotfish.daemon.lab.receipts.receipt_types import PinnedWeights, RunEnvironment, RunPins


def environment_now() -> RunEnvironment:
    """Of this process."""
    return RunEnvironment(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        pilotfish=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}",
        device=device_name(),
        memory=psutil.virtual_memory().total,
        variables={name: value for name, value in sorted(os.environ.items()) if name.startswith("GGML_")},
    )


def pins_of_run(model: str, subject: Subject) -> RunPins:
    """Of the loaded model, asked for as `model`."""
    pin = subject.pin
    return RunPins(
        model=model,
        weights=tuple(PinnedWeights(weight.digest, weight.size) for weight in pin.weights),
        tokenizer=pin.tokenizer,
        engine=subject.engine.engine,
        manifest_digest=pin.manifest_digest,
        architecture=pin.architecture,
        quantization=pin.quantization,
    )
