"""Test doubles for plugin authors and for pilotfish's own tests: an engine, drafters, a vocabulary and a clock."""

from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine, fake_pin
from pilotfish.daemon.lab.fakes.fake_vocabulary import FakeVocabulary
from pilotfish.daemon.lab.fakes.remembering_engine import LeakyEngine, RememberingEngine
from pilotfish.daemon.lab.fakes.scripted_drafters import HiddenDrafter, NoisyDrafter, ScriptedDrafter

__all__ = [
    "FakeClock",
    "FakeEngine",
    "FakeVocabulary",
    "HiddenDrafter",
    "LeakyEngine",
    "NoisyDrafter",
    "RememberingEngine",
    "ScriptedDrafter",
    "fake_pin",
]
