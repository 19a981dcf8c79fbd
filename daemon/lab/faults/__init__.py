"""Faults made on purpose, each around something sound: what has to be caught, and named, by some command."""

from pilotfish.daemon.lab.faults.dropped_bos import BosDroppingTokenizer
from pilotfish.daemon.lab.faults.false_digest import FalselyAcknowledgingDrafter
from pilotfish.daemon.lab.faults.faulty_engines import CellKeepingEngine, WidthSensitiveEngine
from pilotfish.daemon.lab.faults.faulty_probes import CellKeepingProbe, PeekingProbe, WidthSensitiveProbe

__all__ = [
    "BosDroppingTokenizer",
    "CellKeepingEngine",
    "CellKeepingProbe",
    "FalselyAcknowledgingDrafter",
    "PeekingProbe",
    "WidthSensitiveEngine",
    "WidthSensitiveProbe",
]
