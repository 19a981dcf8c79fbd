"""A drafter and its sessions, as a draft host serves them. Everything here belongs to one thread."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pilotfish.daemon.drafters.guard import compare
from pilotfish.daemon.drafthost.bridged import BridgedSession
from pilotfish.daemon.drafthost.draft_protocol import (
    BYTES,
    IDS,
    Close,
    Commit,
    Opening,
    Propose,
    Rollback,
    Step,
    Wanted,
    below,
)
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.declared import hidden_layers_of, sessions_of, vocabulary_of
from pilotfish.hooks.errors import ModelNotFound, UsageError
from pilotfish.hooks.history import RunningDigest
from pilotfish.hooks.proposals import checked
from pilotfish.hooks.protocols import Bridge, Drafter, DraftSession, Host, LoadableDrafter, Vocabulary
from pilotfish.hooks.types import EMPTY, Ack, Footprint, Proposal
from pilotfish.hooks.vocabulary import ByteVocabulary

log = logging.getLogger("pilotfish.hosting")

Admit = Callable[[str, Footprint | None], None]  # a drafter's name and what it needs; raises when that does not fit


class Unknown(UsageError):
    """There is no such session: it was closed, idle for too long, or of a host that has ended since."""


class Occupied(UsageError):
    """The host is busy with other sessions; the same request may be granted later."""


@dataclass(slots=True)
class _Open:
    """A session, the history it was given, and how many ids (or bytes) its proposals may choose from."""

    session: DraftSession
    history: RunningDigest
    below: int


@dataclass(frozen=True, slots=True)
class Turn:
    """What a session answers to its steps. `proposal` is None when none was asked for."""

    ack: Ack
    proposal: Proposal | None = None
    closed: bool = False


class Served:
    """One drafter, loaded for one target at a time, and its sessions.

    A drafter that was loaded for a target is loaded again for another one, once no session is open.
    """

    def __init__(self, drafter: Drafter, registry: Registry, host: Host, admit: Admit | None = None) -> None:
        self.name = drafter.name
        self.limit = sessions_of(drafter)
        self._drafter = drafter
        self._loadable = drafter if isinstance(drafter, LoadableDrafter) else None
        self._registry = registry
        self._host = host
        self._admit = admit
        self._loaded: Wanted | None = None
        self._sessions: dict[str, _Open] = {}

    @property
    def n_sessions(self) -> int:
        """How many are open."""
        return len(self._sessions)

    def load(self, wanted: Wanted) -> str:
        """Be ready for sessions on a target; says what they speak, `ids` or `bytes`. Raises PilotfishError."""
        if hidden_layers_of(self._drafter):
            raise UsageError(f"{self.name} asks for the target's activations, which are not sent to other machines")
        if self._loadable is not None and not self._is_ready_for(wanted):
            self._reload(self._loadable, wanted)
        if (own := self._own(wanted)) is None:
            return IDS
        self._bridge(own)  # raises here and not in every session
        return BYTES

    def open(self, opening: Opening) -> tuple[str, Ack]:
        """A session's name and its first acknowledgement. Raises PilotfishError, or what the drafter raises."""
        if self.n_sessions >= self.limit:
            raise Occupied(f"{self.name} serves {self.n_sessions} of {self.limit} sessions; try again later")
        speaks = self.load(opening.wanted)
        if speaks != opening.speaks:
            raise UsageError(f"{self.name} now speaks {speaks}, not {opening.speaks}; load it again")
        history = RunningDigest(opening.prompt)
        name = secrets.token_urlsafe(12)
        session = self._start(opening)
        self._sessions[name] = _Open(session, history, below(opening.wanted.target, speaks))
        # Nothing was proposed yet: a rollback asks what its history is.
        return name, self.turn(name, [Rollback()]).ack

    def turn(self, name: str, steps: Sequence[Step]) -> Turn:
        """Take a session through `steps`, in order. One that raises is closed."""
        opened = self._sessions.get(name)
        if opened is None:
            raise Unknown(f"there is no session {name!r}; open one")
        try:
            turn = _run(opened, steps)
        except BaseException:
            self.close(name)
            raise
        if turn.closed:
            self.close(name)
        return turn

    def close(self, name: str) -> None:
        """Close a session. Never raises; does nothing when there is none of that name."""
        if (opened := self._sessions.pop(name, None)) is not None:
            try:
                opened.session.close()
            except BaseException:
                log.warning("%s: closing a session failed", self.name, exc_info=True)

    def unload(self) -> None:
        """Close every session and give back what was loaded. Never raises."""
        for name in list(self._sessions):
            self.close(name)
        loaded, self._loaded = self._loaded, None
        if self._loadable is not None and loaded is not None:
            try:
                self._loadable.unload()
            except BaseException:
                log.warning("%s: unloading failed", self.name, exc_info=True)

    def _is_ready_for(self, wanted: Wanted) -> bool:
        loaded = self._loaded
        return loaded is not None and loaded.target == wanted.target and loaded.options.n_ctx >= wanted.options.n_ctx

    def _reload(self, drafter: LoadableDrafter, wanted: Wanted) -> None:
        if self._sessions:
            raise Occupied(f"{self.name} serves sessions on another target; try again when they have ended")
        self.unload()
        if self._admit is not None:
            self._admit(self.name, drafter.footprint(self._host, wanted.target, wanted.options))
        drafter.load(self._host, wanted.target, wanted.options)
        self._loaded = wanted
        log.info("%s is loaded for %s", self.name, wanted.target.name)

    def _own(self, wanted: Wanted) -> Vocabulary | None:
        """The drafter's vocabulary, if it is another one than the target's."""
        own = vocabulary_of(self._drafter)
        fingerprint = wanted.target.tokenizer.fingerprint
        return None if own is None or (fingerprint and own.pin.fingerprint == fingerprint) else own

    def _start(self, opening: Opening) -> DraftSession:
        own, target = self._own(opening.wanted), opening.wanted.target
        if own is None:
            return self._drafter.open(target, opening.prompt)
        bridge, n_vocab = self._bridge(own), own.pin.n_vocab
        return BridgedSession(bridge, lambda ids: self._drafter.open(target, ids), opening.prompt, n_vocab)

    def _bridge(self, own: Vocabulary) -> Bridge:
        found = self._registry.bridge(own, ByteVocabulary())
        if found is None:
            raise ModelNotFound(
                f"{self.name}: no bridge joins its vocabulary ({own.pin.model}, {own.pin.n_vocab} ids) to text; "
                "install a plugin that has one, or draft with a model that has the target's tokenizer"
            )
        return found[1]


def _run(opened: _Open, steps: Sequence[Step]) -> Turn:
    session, history = opened.session, opened.history
    proposal: Proposal | None = None
    closed = False
    for step in steps:
        match step:
            case Commit(tokens):
                compare(session.commit(tokens), history.commit(tokens))
            case Rollback():
                compare(session.rollback(), history.ack())
            case Propose(k):
                proposal = checked(session.propose(k), opened.below, k) if k else EMPTY
            case Close():
                closed = True
    return Turn(history.ack(), proposal, closed)
