"""The whole examination."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pilotfish.daemon.lab.doctor.far_checks import far_findings
from pilotfish.daemon.lab.doctor.finding import Finding, Level
from pilotfish.daemon.lab.doctor.machine_checks import (
    config_findings,
    device_findings,
    engine_findings,
    ollama_findings,
    plugin_findings,
)
from pilotfish.daemon.lab.doctor.model_checks import model_findings, skipped_findings
from pilotfish.daemon.lab.doctor.surroundings import Surroundings

CHECKS: tuple[Callable[[Surroundings], Iterator[Finding]], ...] = (
    config_findings,
    plugin_findings,
    engine_findings,
    ollama_findings,
    device_findings,
    far_findings,
    skipped_findings,
)


def examine(around: Surroundings) -> list[Finding]:
    """Every finding, what matters most first. Blocks: headers of weight files are read."""
    found = [finding for check in CHECKS for finding in check(around)]
    found += [finding for manifest in around.models for finding in model_findings(around, manifest)]
    return sorted(found, key=lambda finding: list(Level).index(finding.level))
