"""The contract between pilotfish and its plugins."""

from pilotfish.hooks.drafting import HistoryDrafter
from pilotfish.hooks.history import History
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import EMPTY, Ack, Placement, Proposal, TargetPin

__all__ = ["EMPTY", "Ack", "History", "HistoryDrafter", "Placement", "Proposal", "TargetPin", "hookimpl"]
