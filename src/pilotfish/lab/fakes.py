"""Test doubles: a deterministic engine, drafters that do what they are told, a vocabulary, a clock."""

from pilotfish.daemon.lab.fakes import (
    FakeClock,
    FakeEngine,
    FakeVocabulary,
    HiddenDrafter,
    LeakyEngine,
    NoisyDrafter,
    RememberingEngine,
    ScriptedDrafter,
    fake_pin,
)

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
