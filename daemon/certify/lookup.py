"""The lane to load a model in: the certificate's, or what to do without one."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass

from pilotfish.daemon.certify.candidates import stock_setting
from pilotfish.daemon.certify.certificate import Certificate, CertificateStore, Identity, identity_for
from pilotfish.daemon.certify.lanes import ALL_WIDTHS
from pilotfish.hooks.errors import PilotfishError
from pilotfish.hooks.protocols import Verifier
from pilotfish.hooks.types import EngineOptions, Lane, Parity, TargetPin

log = logging.getLogger("pilotfish.certificates")

UNCHECKED_WIDTHS = ALL_WIDTHS[:16]


@dataclass(frozen=True, slots=True)
class LaneLookup:
    """`lane` None: the verifier makes its own check at load. `identity` is set when certifying would be of use."""

    lane: Lane | None
    certificate: Certificate | None = None
    identity: Identity | None = None


def find_lane(pin: TargetPin, verifier: Verifier, options: EngineOptions, parity: Parity = Parity.LANE) -> LaneLookup:
    """What is known about loading `pin`. Loads no engine and never raises: without knowledge there is no lane."""
    if parity is Parity.NONE:
        return LaneLookup(_unchecked(options, verifier.name))
    try:
        identity = identity_for(pin, verifier, options, parity)
    except (PilotfishError, OSError) as error:
        log.warning("%s: no certificate can be looked up: %s", pin.name, error)
        identity = None
    certificate = CertificateStore(options.state_dir).find(identity) if identity else None
    if certificate:
        return LaneLookup(certificate.lane, certificate)
    if identity:
        log.info("%s: not certified with these settings; checked at load instead", pin.name)
    return LaneLookup(_plain_stock(options, verifier.name) if parity is Parity.STOCK else None, None, identity)


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
    reason = 'the config says parity = "stock" and there is no certificate yet: pilotfish certify makes one'
    return Lane(setting.title, (1,), setting, parity=Parity.STOCK, reason=reason)
