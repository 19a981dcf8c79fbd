"""Test doubles for plugin authors and for pilotfish's own tests: an engine, drafters and a clock."""

from tests.fakes.clock import FakeClock
from tests.fakes.drafters import NoisyDrafter, ScriptedDrafter
from tests.fakes.engine import FakeEngine, fake_pin

__all__ = ["FakeClock", "FakeEngine", "NoisyDrafter", "ScriptedDrafter", "fake_pin"]
