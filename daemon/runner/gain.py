"""Whether speculation can gain anything with a launch. Where it cannot, and there is a stock server, that one serves.

A lane of one width computes no faster than stock, and what surrounds it (other caches, a Python process) is not free.
It is found out as early as possible: by a certificate before the weights are read, else by the check at load, before
the runner says that it is ready; or by a certificate that is made, or a config that changes, while the model is loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.daemon.certify.certificate import CertificateStore
from pilotfish.daemon.certify.left_to_stock import DAY, Left
from pilotfish.daemon.certify.lookup import Attempt, LaneLookup
from pilotfish.daemon.config.types import STOCK_ENGINE
from pilotfish.daemon.drafters.admission import size
from pilotfish.daemon.drafters.memory_bounds import CPU, bounds_for
from pilotfish.daemon.registry import accelerators
from pilotfish.daemon.registry.chosen_verifier import devices_of
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.environment import switched_off
from pilotfish.hooks.errors import PilotfishError
from pilotfish.hooks.protocols import HasSlots, TargetEngine, TellsFootprint, Verifier, VerifiesTogether
from pilotfish.hooks.types import EngineOptions, Lane, Parity, TargetPin

if TYPE_CHECKING:
    from pilotfish.daemon.core.generator import Generator
    from pilotfish.daemon.core.totals import Standing

RUNNER = 128 << 20  # bytes for Python, what it imports and what drafters remember; 50 MiB were measured at rest
_NOTHING = "speculation has nothing to gain here"


class NothingToGain(PilotfishError):
    """The stock server is to serve this launch. `left` is to be remembered; None where the next load may differ."""

    def __init__(self, reason: str, left: Left | None = None) -> None:
        super().__init__(reason)
        self.left = left


def _nothing(why: str, certificate: str = "", job: str = "") -> NothingToGain:
    reason = f"{_NOTHING}: {why}"
    return NothingToGain(reason, Left(reason, round(time.time(), 3), certificate=certificate, job=job))


def demand_lane(found: LaneLookup, state_dir: Path | None) -> None:
    """Raise NothingToGain when a certificate says, before anything is loaded, that there is no wider lane."""
    if found.certificate is not None and (why := _plain(found.certificate.lane)):
        folder = CertificateStore(state_dir).folder
        assert folder is not None  # it was found there
        raise _nothing(why, str(folder / f"{found.certificate.identity.key}.json"))


def demand_device(
    registry: Registry,
    verifiers: Sequence[Verifier],
    options: EngineOptions,
    stock_devices: Callable[[], Sequence[str]],
) -> None:
    """Raise NothingToGain when the stock server would put layers on an accelerator where no verifier computes.

    It is asked only where the machine shows one. The verdict holds for a day: devices come and go.
    """
    if options.gpu_layers == 0 or not accelerators.shown():
        return
    if any(devices_of(registry, verifier) for verifier in verifiers):
        return
    if there := stock_devices():
        names, now = ", ".join(verifier.name for verifier in verifiers), round(time.time(), 3)
        reason = f"{_NOTHING}: stock computes on {there[0]}, and the build of {names} on processors only"
        raise NothingToGain(reason, Left(reason, now, until=now + DAY))


def demand_memory(pin: TargetPin, verifier: Verifier, options: EngineOptions) -> None:
    """Raise NothingToGain when what must stay in memory does not fit in what is available.

    That is the cache of the full context, the weights unless they are mapped (those the system reads again), and
    what a runner takes besides, which stock does not. Of devices other than the system's memory nothing is said,
    because a launch may put only a part of the model there.
    """
    if not isinstance(verifier, TellsFootprint):
        return
    needs = verifier.footprint(pin, options)
    if needs.device != CPU:
        return
    weights = 0 if options.use_mmap else needs.weights
    for bound in bounds_for(CPU):
        if bound.lends and weights + needs.cache + RUNNER > bound.available:
            loaded = f"weights {size(weights)} + " if weights else ""
            raise NothingToGain(
                f"too little memory: {loaded}full context {size(needs.cache)} + runner {size(RUNNER)}, but of "
                f"{bound.what} ({size(bound.total)}) {size(bound.available)} are available"
            )


def demand_drafts(standing: Standing, found: LaneLookup, *, awaited: bool, job: str = "") -> None:
    """Raise NothingToGain when the loaded model decodes plainly. `job` is the certification that may find more.

    A model that computes in stock's own setting until its certificate is made (`awaited`) costs nothing meanwhile.
    """
    if standing.state == "plain" and not awaited:
        looks_further = standing.by_lane and found.certificate is None
        more = "; `pilotfish certify` looks further than a load does" if looks_further else ""
        raise _nothing(standing.reason + more, job=job if looks_further else "")


def demand_company(engine: TargetEngine, attempt: Attempt, found: LaneLookup, *, job: str = "") -> None:
    """Raise NothingToGain when a step of all the launch's requests at once takes more forwards than the one of stock.

    Only in a lane that was found at load: a certificate has the prices of as many requests, also one of a model like
    this in the same setting. `job` is the certification that may find another lane; without one this holds for a day.
    """
    if attempt.lane is not None or engine.lane.setting == found.priced:
        return
    slots = engine.slots if isinstance(engine, HasSlots) else 1
    joined = engine.together(engine.lane.widths[0]) if isinstance(engine, VerifiesTogether) else 1
    if joined < slots:
        why = f"{slots} requests at once would take {-(-slots // joined)} forwards a step in its lane, and 1 with stock"
        raise _until_priced(f"{why}; `pilotfish certify --parallel {slots}` looks for another lane", job)


def demand_price(attempt: Attempt, lane: Lane, found: LaneLookup, *, plain: Attempt | None, job: str = "") -> None:
    """Raise NothingToGain for a lane of another engine than stock's, found at load, where that one has none: `plain`.

    Its drafts may gain, but its plain steps may take longer than stock's, and nobody has measured that: floats do, by a
    third. A certificate does, also one of a model like this in the same setting. As with `demand_company`.
    """
    stock = plain is not None and plain.verifier.name == STOCK_ENGINE and attempt.verifier.name != STOCK_ENGINE
    if stock and attempt.lane is None and lane.max_width > 1 and lane.setting != found.priced:
        engine = attempt.verifier.name
        why = f"{STOCK_ENGINE} decodes it plainly, and what {engine} takes for a step is not measured yet"
        raise _until_priced(
            f'{why}: `pilotfish certify` does, and `[engine] choice = "{engine}"` takes it as it is', job
        )


def _until_priced(why: str, job: str) -> NothingToGain:
    """It holds until `job` was done; for a day where nobody does it."""
    nothing = _nothing(why, job=job)
    if nothing.left is not None and (not job or switched_off("PILOTFISH_CERTIFY")):
        nothing.left = replace(nothing.left, until=nothing.left.since + DAY)
    return nothing


def awaits_certificate(parity: Parity, job: str) -> bool:
    """Whether a lane of that parity is stock's own and a certificate, by `job`, may soon make more of it."""
    return parity is Parity.STOCK and bool(job) and not switched_off("PILOTFISH_CERTIFY")


@dataclass(slots=True)
class Outlook:
    """Whether a loaded model has something to gain, as long as it runs. `awaited`: its certificate is to be made."""

    generator: Generator
    state_dir: Path
    awaited: bool
    _certified: str = ""

    def certified(self) -> None:
        """A certificate was made: the newest one of these weights. Reads files."""
        self.awaited = False
        weights = tuple(weight.digest for weight in self.generator.pin.weights)
        made = next(CertificateStore(self.state_dir).of_weights(weights), None)
        self._certified = _plain(made.lane) if made else ""

    def why_stock(self) -> str:
        """Why the stock server should have the model; empty while it should not.

        One that is switched off stays where it is, so that it can be switched on again.
        """
        if self._certified:
            return f"{_NOTHING}: {self._certified}"
        standing = self.generator.standing
        return f"{_NOTHING}: {standing.reason}" if standing.state == "plain" and not self.awaited else ""


def _plain(lane: Lane) -> str:
    """Why a lane is no wider than one token; empty where it is."""
    return "" if lane.max_width > 1 else lane.reason or "no forward wider than one token gives the same ids"
