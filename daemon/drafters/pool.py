"""The drafters of one loaded model: built, loaded in the background, and given a guard in each request.

A drafter with something to load goes through

    loading ──> ready ──> unloaded          refused   it does not fit, or no bridge joins its vocabulary to the target's
       └──────> failed (tried again later)

on a thread of its own. Requests never wait for any of it: they are answered with the drafters that are ready. One that
could not give back what it holds has failed, too.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence

from pilotfish.daemon.drafters.guard import Guard
from pilotfish.daemon.drafters.hidden_feed import hidden_refusal
from pilotfish.daemon.drafters.inline_guard import InlineGuard
from pilotfish.daemon.drafters.member import FIRST_RETRY, DrafterState, Member
from pilotfish.daemon.drafters.proposals import Refusals
from pilotfish.daemon.drafters.threaded_guard import ThreadedGuard
from pilotfish.daemon.drafters.worker import DrafterWorker, SameThread
from pilotfish.daemon.registry.containment import said, where
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.declared import placement_of, vocabulary_of
from pilotfish.hooks.errors import AdmissionRefused, PilotfishError, ProtocolViolation, WorldError
from pilotfish.hooks.hidden import HiddenShape
from pilotfish.hooks.protocols import Bridge, Drafter, Host, LoadableDrafter, Vocabulary
from pilotfish.hooks.types import EngineOptions, Footprint, Placement, TargetPin

log = logging.getLogger("pilotfish.drafters")

Admit = Callable[[str, Footprint, Sequence[Footprint]], None]  # raises a PilotfishError that says why not
Pressed = Callable[[Sequence[Footprint]], str]
Wrap = Callable[[LoadableDrafter], Drafter]


class DrafterRefused(WorldError):
    """A drafter cannot serve this target; trying again would not help."""


class DrafterPool:
    """Made per loaded model. `guards` is called by the engine's thread, everything else by any.

    `admit` is asked before a drafter loads beside the others, `pressed` says why those that are loaded must give their
    memory back, and `wrap` puts a drafter that wants a process of its own into one. `hidden` is what `engine` tells of
    the target's activations.
    """

    def __init__(
        self,
        pin: TargetPin,
        vocabulary: Vocabulary,
        n_vocab: int,
        *,
        options: EngineOptions | None = None,
        host: Host | None = None,
        admit: Admit = lambda name, footprint, others: None,
        pressed: Pressed = lambda loaded: "",
        wrap: Wrap = lambda drafter: drafter,
        clock: Callable[[], float] = time.monotonic,
        hidden: HiddenShape | None = None,
        engine: str = "",
    ) -> None:
        self._hidden, self._engine = hidden, engine or "of this target"
        self._pin = pin
        self._vocabulary = vocabulary
        self._n_vocab = n_vocab
        self._options = options or EngineOptions()
        self._host = host
        self._admit = admit
        self._pressed = pressed
        self._wrap = wrap
        self._clock = clock
        self._members: dict[str, Member] = {}
        self._leaving: list[DrafterWorker] = []
        self._loading_one = threading.Lock()
        self._lock = threading.Lock()

    def use(self, registry: Registry, order: Sequence[str]) -> None:
        """Have exactly these drafters: new ones begin to load, others give back what they hold. Returns at once."""
        drafters = {name: registry.drafter(name) for name in registry.choose(self._pin, order)}
        with self._lock:
            for name, member in list(self._members.items()):
                if drafters.get(name) is not member.built:
                    self._let_go(name, self._members.pop(name))
            members = {}
            for name, drafter in drafters.items():
                if drafter is None:
                    continue
                if (hired := self._members.get(name) or self._hired(name, drafter, registry)) is not None:
                    members[name] = hired
            self._members = members  # in the order of preference

    def guards(self, registry: Registry, prompt: Sequence[int], deadline: float) -> list[Guard]:
        """An open guard for each drafter that is ready and has a seat left, in the order of preference.

        `deadline` is in seconds. A guard keeps its seat until it is closed.
        """
        with self._lock:
            members = dict(self._members)
        why = self._pressure() if any(member.loads for member in members.values()) else ""
        guards: list[Guard] = []
        for name, member in members.items():
            try:
                guard = self._ready_guard(name, member, registry, prompt, deadline, why)
            except BaseException as error:
                log.warning("drafter %s gets no guard: it raised %s", name, where(error))
                continue
            if guard is not None:
                guards.append(guard)
        return guards

    def describe(self) -> dict[str, dict[str, str]]:
        """By drafter: its state, and why it is in it or what the drafter itself says."""
        with self._lock:
            members = dict(self._members)
        return {name: {"state": member.state, "about": member.about()} for name, member in members.items()}

    def close(self, timeout: float = 5.0) -> None:
        """Let every drafter give back what it holds, and wait for it a little."""
        with self._lock:
            for name, member in self._members.items():
                self._let_go(name, member)
            self._members, leaving, self._leaving = {}, self._leaving, []
        for worker in leaving:
            worker.join(timeout)

    def settle(self, timeout: float) -> bool:
        """Wait until no drafter is loading; False when that takes longer than `timeout` seconds."""
        with self._lock:
            members = list(self._members.values())
        return all(member.worker.settle(timeout) for member in members)

    def _hired(self, name: str, drafter: Drafter, registry: Registry) -> Member | None:
        try:
            return self._hire(name, drafter, registry)
        except BaseException as error:
            log.warning("drafter %s is not used: it raised %s", name, where(error))
            return None

    def _hire(self, name: str, drafter: Drafter, registry: Registry) -> Member:
        if why := hidden_refusal(drafter, self._hidden, self._engine):
            log.warning("drafter %s is refused: %s", name, why)
            return Member(drafter, drafter, DrafterWorker(name), DrafterState.REFUSED, why, math.inf)
        used = drafter
        if isinstance(drafter, LoadableDrafter) and drafter.placement is Placement.PROCESS:
            used = self._wrap(drafter)
        member = Member(drafter, used, DrafterWorker(name))
        if member.loads:
            self._load(name, member, registry)
        return member

    def _ready_guard(
        self, name: str, member: Member, registry: Registry, prompt: Sequence[int], deadline: float, pressure: str
    ) -> Guard | None:
        """A guard if the drafter is ready; else see to it for the next request. Raises what the drafter raises."""
        if pressure and member.loads and member.state is DrafterState.READY:
            self._unload(name, member, pressure)
        if member.gone:
            member.postpone(self._clock())
            member.state, member.trouble = DrafterState.FAILED, "its process ended"
        if member.state.may_load and self._clock() >= member.retry_at and not pressure:
            self._load(name, member, registry)
        if member.state is not DrafterState.READY or not member.has_seat():
            return None
        return self._guard_of(member, registry, prompt, deadline)

    def _let_go(self, name: str, member: Member) -> None:
        if member.loads:
            member.worker.post(lambda: self._leave(name, member))
        member.worker.end()
        self._leaving = [worker for worker in self._leaving if worker.alive] + [member.worker]

    def _load(self, name: str, member: Member, registry: Registry) -> None:
        member.state, member.trouble = DrafterState.LOADING, ""
        if not member.worker.post(lambda: self._loading(name, member, registry)):
            self._failed(name, member, WorldError("the system has no thread left for it"), "")

    def _loading(self, name: str, member: Member, registry: Registry) -> None:
        """On the drafter's thread."""
        drafter = member.drafter
        if not isinstance(drafter, LoadableDrafter):
            return
        try:
            if self._host is None:
                raise DrafterRefused(f"{name} has something to load, which nobody here does for it")
            footprint = drafter.footprint(self._host, self._pin, self._options)
            if footprint is None:
                drafter.load(self._host, self._pin, self._options)
            elif not isinstance(footprint, Footprint):
                raise ProtocolViolation(f"{name}: footprint returned a {type(footprint).__name__}, not a Footprint")
            else:
                with self._loading_one:  # so that each is admitted beside all that is loaded
                    self._admit(name, footprint, self._footprints())
                    member.footprint = footprint
                    drafter.load(self._host, self._pin, self._options)
            if self._bridge(drafter, registry) is None:  # also builds what the bridge keeps, while nobody waits
                raise DrafterRefused(
                    f"{name} has another vocabulary than {self._pin.name}, and no bridge joins the two"
                )
        except BaseException as error:
            stuck = member.free()
            member.footprint = None
            self._failed(name, member, error, stuck)
        else:
            member.retry_after = FIRST_RETRY
            member.state = DrafterState.READY
            log.info("drafter %s is ready", name)

    def _failed(self, name: str, member: Member, error: BaseException, stuck: str) -> None:
        """`stuck` says why it could not give back what it had of the load, if so."""
        refused = isinstance(error, AdmissionRefused)  # until there is room
        at_fault = isinstance(error, PilotfishError) and not isinstance(error, WorldError)
        if at_fault or isinstance(error, DrafterRefused):
            refused, member.retry_at = True, math.inf
        else:
            member.postpone(self._clock())
        what = said(error) if isinstance(error, PilotfishError) else f"{type(error).__name__}: {said(error)}"
        if stuck:
            refused, what = False, f"{what}; {stuck}"
        wait = member.retry_at - self._clock()
        member.trouble = what if refused or math.isinf(wait) else f"{what}; tried again in {wait:.0f} s"
        member.state = DrafterState.REFUSED if refused else DrafterState.FAILED
        log.warning("drafter %s is %s: %s", name, member.state, member.trouble)

    def _unload(self, name: str, member: Member, why: str) -> None:
        log.warning("drafter %s gives its memory back: %s", name, why)
        member.postpone(self._clock())
        member.state, member.trouble, member.footprint = DrafterState.UNLOADED, why, None
        member.worker.post(lambda: self._leave(name, member))

    def _leave(self, name: str, member: Member) -> None:
        """Have a drafter give back what it holds, on its thread."""
        if stuck := member.free():
            log.warning("drafter %s: %s", name, stuck)
            if member.state is DrafterState.UNLOADED:  # and not asked to load again meanwhile
                member.state, member.trouble = DrafterState.FAILED, f"{member.trouble}; {stuck}"

    def _pressure(self) -> str:
        """Why the loaded drafters must give their memory back; empty while they need not, or nobody can tell."""
        try:
            return self._pressed(self._footprints())
        except BaseException as error:  # it asks the verifier, a plugin as well
            log.warning("whether memory is short cannot be told: it raised %s", where(error))
            return ""

    def _footprints(self) -> list[Footprint]:
        """Of the drafters that are loaded."""
        with self._lock:
            return [member.footprint for member in self._members.values() if member.footprint is not None]

    def _bridge(self, drafter: Drafter, registry: Registry) -> tuple[str, Bridge] | None:
        # A drafter without a vocabulary of its own speaks the target's ids.
        return registry.bridge(vocabulary_of(drafter) or self._vocabulary, self._vocabulary)

    def _guard_of(self, member: Member, registry: Registry, prompt: Sequence[int], deadline: float) -> Guard | None:
        drafter = member.drafter
        found = self._bridge(drafter, registry)
        if found is None:
            log.warning("drafter %s has another vocabulary than %s and no bridge fits", drafter.name, self._pin.name)
            return None
        guard = guard_for(
            drafter, found[1], member.worker, n_vocab=self._n_vocab, deadline=deadline, refusals=member.refusals
        )
        guard.open(self._pin, prompt)
        if guard.dropped:
            guard.close()
            return None
        member.seats.append(guard)
        return guard


def guard_for(
    drafter: Drafter,
    bridge: Bridge,
    worker: DrafterWorker,
    *,
    n_vocab: int,
    deadline: float,
    refusals: Refusals | None = None,
) -> Guard:
    """The kind of guard that a drafter's placement asks for; `deadline` is in seconds."""
    placement = placement_of(drafter)
    if placement is Placement.INLINE:
        return InlineGuard(drafter, bridge, n_vocab=n_vocab, refusals=refusals)
    runs_on = SameThread() if placement is Placement.ENGINE_THREAD else worker
    return ThreadedGuard(drafter, bridge, runs_on, n_vocab=n_vocab, deadline=deadline, refusals=refusals)
