"""Suites that every plugin of a kind must pass, as classes for pytest. See docs/drafters.md, the conformance suite."""

from pilotfish.daemon.lab.conformance.suites import (
    BridgeConformance,
    DrafterConformance,
    SlotConformance,
    VerifierConformance,
)

__all__ = ["BridgeConformance", "DrafterConformance", "SlotConformance", "VerifierConformance"]
