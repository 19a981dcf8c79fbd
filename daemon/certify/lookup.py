"""The engine and the lane to load a model in: the certificate's, or what to do without one."""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pilotfish.daemon.certify.candidates import stock_setting
from pilotfish.daemon.certify.certificate import Certificate, CertificateStore, Identity, identity_for
from pilotfish.daemon.certify.lanes import ALL_WIDTHS
from pilotfish.daemon.certify.suitability import Suitability, too_far
from pilotfish.daemon.config.types import STOCK_ENGINE
from pilotfish.hooks.errors import PilotfishError
from pilotfish.hooks.protocols import RefusesModels, Verifier
from pilotfish.hooks.types import EngineOptions, EngineSetting, Lane, Parity, TargetPin

log = logging.getLogger("pilotfish.certificates")

UNCHECKED_WIDTHS = ALL_WIDTHS[:16]
FLOATS = frozenset({"F32", "F16", "BF16"})  # an engine that is faster with blocks of integers may be slower with these


@dataclass(frozen=True, slots=True)
class Attempt:
    """A way to load a model. `lane` None: the verifier makes its own check at load."""

    verifier: Verifier
    lane: Lane | None = None


@dataclass(frozen=True, slots=True)
class LaneLookup:
    """`attempts` come in order: where loading fails, the next one may still do. `why` says why the first is the first.

    `certificate` is that of the first attempt's lane; `identity` is set when certifying would be of use. `priced` is
    the setting that won for a model like this, for as many requests at once.
    """

    attempts: tuple[Attempt, ...]
    why: str = ""
    certificate: Certificate | None = None
    identity: Identity | None = None
    priced: EngineSetting | None = None

    @property
    def lane(self) -> Lane | None:
        """The first attempt's."""
        return self.attempts[0].lane


def find_lane(
    pin: TargetPin, verifiers: Sequence[Verifier], options: EngineOptions, parity: Parity = Parity.LANE
) -> LaneLookup:
    """What is known about loading `pin` with one of `verifiers`, of which stock's comes first.

    Loads no engine and never raises: without knowledge there is no lane.
    """
    try:
        identity = identity_for(pin, verifiers, options, parity)
    except (PilotfishError, OSError) as error:
        log.warning("%s: no certificate can be looked up: %s", pin.name, error)
        identity = None
    store = CertificateStore(options.state_dir)
    certificate = store.find(identity) if identity and parity is not Parity.NONE else None
    if certificate and (made_for := _of_engine(verifiers, certificate.lane.setting.engine)):
        others = [Attempt(verifier) for verifier in verifiers if verifier is not made_for]
        again = identity if certificate.unmeasured or certificate.cut_short else None
        return LaneLookup((Attempt(made_for, certificate.lane), *others), "certified", certificate, again)
    order, why, alike = _preferred(pin, verifiers, options, store, identity)
    if parity is Parity.NONE:
        return LaneLookup(tuple(Attempt(v, _unchecked(options, v.name)) for v in order), why)
    if identity:
        log.info("%s: not certified with these settings; checked at load instead", pin.name)
    stock = parity is Parity.STOCK
    attempts = tuple(Attempt(v, _plain_stock(options, v.name) if stock else None) for v in order)
    return LaneLookup(attempts, why, None, identity, alike.lane.setting if alike else None)


def _of_engine(verifiers: Sequence[Verifier], name: str) -> Verifier | None:
    return next((verifier for verifier in verifiers if verifier.name == name), None)


def _preferred(
    pin: TargetPin,
    verifiers: Sequence[Verifier],
    options: EngineOptions,
    store: CertificateStore,
    identity: Identity | None,
) -> tuple[list[Verifier], str, Certificate | None]:
    """The verifiers in the order in which to try them, why the first one is the first, and the certificate of that.

    The one that won for the model most like this one comes first; those that are known not to take the model, or to
    compute something else, are left out as long as there is another.
    """
    if len(verifiers) == 1 or identity is None:
        return list(verifiers), "", None
    suitability = Suitability(pin, dict(identity.engines), options)
    left = [v for v in verifiers if not _against(v, pin, options, suitability)] or list(verifiers)
    alike = _most_alike(pin, store, identity)
    winner = _of_engine(left, alike.lane.setting.engine) if alike else None
    if alike is None or winner is None:
        return left, "not measured yet", None
    rest = [verifier for verifier in left if verifier is not winner]
    return [winner, *rest], f"not measured yet; the fastest for {alike.model}", alike


def _against(verifier: Verifier, pin: TargetPin, options: EngineOptions, suitability: Suitability) -> str:
    """What is known to speak against computing `pin` with `verifier`; empty for nothing."""
    known = suitability.refusal(verifier.name) or too_far(suitability.divergence(verifier.name))
    why = known or (verifier.unfit_for(pin, options) if isinstance(verifier, RefusesModels) else "")
    if why:
        log.info("%s: not for the engine %s: %s", pin.name, verifier.name, why)
    return why


def _most_alike(pin: TargetPin, store: CertificateStore, identity: Identity) -> Certificate | None:
    """The certificate of a model of this architecture, made here for the same engines: of its number format if there is
    one, then the one nearest in size. Floats say nothing of other formats, nor these of them."""
    size = sum(weight.size for weight in pin.weights)

    def distance(certificate: Certificate) -> tuple[bool, float]:
        apart = abs(math.log(max(1, certificate.size) / max(1, size)))
        return certificate.quantization != pin.quantization, apart

    found = [
        entry.certificate
        for entry in store.entries()
        if entry.certificate and _compares(entry.certificate, identity) and entry.certificate.lane.max_width > 1
        if (entry.certificate.quantization in FLOATS) == (pin.quantization in FLOATS)
    ]
    return min((c for c in found if c.architecture and c.architecture == pin.architecture), key=distance, default=None)


def _compares(certificate: Certificate, identity: Identity) -> bool:
    """Whether its choice was made among the same engines, on the same machine, for layers in the same place and as many
    requests at once."""
    return {"engines", "device", "gpu_layers", "slots"}.isdisjoint(certificate.identity.differences(identity))


@contextlib.contextmanager
def engine_environment(lane: Lane | None) -> Iterator[None]:
    """The environment of the lane's setting in force while the engine's library loads.

    It stays in force afterwards; if loading fails it is taken back, since the stock server may inherit it.
    """
    wanted = dict(lane.setting.environment) if lane else {}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    except BaseException:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        raise


def _unchecked(options: EngineOptions, engine: str) -> Lane:
    """Stock settings and every width: tokens may change, and the user asked for it."""
    setting = stock_setting(options, engine)
    reason = 'the config says parity = "none": nothing is promised'
    return Lane(setting.title, UNCHECKED_WIDTHS, setting, parity=Parity.NONE, reason=reason)


def _plain_stock(options: EngineOptions, engine: str) -> Lane:
    setting = stock_setting(options, engine)
    if engine != STOCK_ENGINE:
        reason = f'the config says parity = "stock", which {engine} cannot promise'
        return Lane(setting.title, (1,), setting, parity=Parity.NONE, reason=reason)
    reason = 'the config says parity = "stock" and there is no certificate yet: pilotfish certify makes one'
    return Lane(setting.title, (1,), setting, parity=Parity.STOCK, reason=reason)
