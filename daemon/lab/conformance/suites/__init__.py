"""The checks of `pilotfish conformance` as pytest sees them. Subclass a suite, give it a fixture, run pytest::

from pilotfish.lab.conformance import DrafterConformance

class TestMine(DrafterConformance):
    @pytest.fixture
    def drafter(self):
        return Mine()
"""

import pytest

pytest.register_assert_rewrite("pilotfish.daemon.lab.conformance.suites.bridge_suite")

from pilotfish.daemon.lab.conformance.suites.bridge_suite import (  # noqa: E402 - after the rewrite is registered
    BridgeConformance,
)
from pilotfish.daemon.lab.conformance.suites.drafter_suite import DrafterConformance  # noqa: E402 - likewise
from pilotfish.daemon.lab.conformance.suites.slot_suite import SlotConformance  # noqa: E402 - likewise
from pilotfish.daemon.lab.conformance.suites.verifier_suite import VerifierConformance  # noqa: E402 - likewise

__all__ = ["BridgeConformance", "DrafterConformance", "SlotConformance", "VerifierConformance"]
