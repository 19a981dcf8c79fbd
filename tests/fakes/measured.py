"""Certificates that nobody measured."""

from __future__ import annotations

from typing import Any

from pilotfish.daemon.certify.certificate import Certificate, Identity
from pilotfish.hooks.types import Lane


def certificate_of(identity: Identity, lane: Lane, **differences: Any) -> Certificate:
    """One for `lane` with plausible figures, except for the `differences`."""
    figures: dict[str, Any] = {
        "model": "fake:latest",
        "architecture": "fake",
        "quantization": "Q4_0",
        "size": 1000,
        "engine": "fake 1",
        "reference": "llama",
        "created": "2030-01-01T00:00:00+00:00",
        "n_ctx": 1024,
        "plain_ratio": 0.99,
        "prompt_ratio": 1.1,
        "expected_ratio": 0.7,
        "switch_points": (256,),
        "costs": ((1, 64, 0.01), (8, 64, 0.02)),
        "regimes": ({"start": 0, "end": 1024, "rows": {"2": 512, "3": 512, "8": 512}},),
        "variants": (),
        "findings": (),
        "seconds": 59.0,
        "complete": True,
    }
    return Certificate(identity=identity, lane=lane, **{**figures, **differences})
