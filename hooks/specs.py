"""Every hook pilotfish calls. Hooks run when something is registered or opened, never per token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pluggy

from pilotfish.hooks.protocols import BridgeFactory, DrafterFactory, VerifierFactory
from pilotfish.hooks.types import SessionInfo, SessionReport, TargetPin

PROJECT = "pilotfish"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def pilotfish_register_drafters(register: Callable[[str, DrafterFactory], None], config: Mapping[str, Any]) -> None:
    """Call `register(name, factory)` for each drafter; `config` is the whole config, read-only."""


@hookspec
def pilotfish_register_bridges(register: Callable[[str, BridgeFactory], None], config: Mapping[str, Any]) -> None:
    """Call `register(name, factory)` for each bridge; bridges are asked in the order of registration."""


@hookspec
def pilotfish_register_verifiers(register: Callable[[str, VerifierFactory], None], config: Mapping[str, Any]) -> None:
    """Call `register(name, factory)` for each verifier."""


@hookspec(firstresult=True)
def pilotfish_choose_drafters(target: TargetPin, available: Sequence[str]) -> Sequence[str] | None:
    """The drafters to use for `target`, in order of preference; None leaves the choice to the next plugin."""


@hookspec
def pilotfish_session_opened(session: SessionInfo) -> None:
    """A request is about to be answered."""


@hookspec
def pilotfish_session_closed(session: SessionInfo, report: SessionReport) -> None:
    """A request was answered, cancelled or failed; `report` says what it did."""


@hookspec
def pilotfish_model_pinned(pin: TargetPin) -> None:
    """A model's pins were taken."""
