"""Suites that any plugin of a kind must pass. Subclass one, give it a fixture, run pytest::

from tests.conformance import DrafterConformance

class TestMine(DrafterConformance):
    @pytest.fixture
    def drafter(self):
        return Mine()
"""

import pytest

pytest.register_assert_rewrite("tests.conformance.bridge", "tests.conformance.drafter", "tests.conformance.verifier")

from tests.conformance.bridge import BridgeConformance  # noqa: E402 - after the rewrite is registered
from tests.conformance.drafter import DrafterConformance  # noqa: E402 - likewise
from tests.conformance.verifier import VerifierConformance  # noqa: E402 - likewise

__all__ = ["BridgeConformance", "DrafterConformance", "VerifierConformance"]
