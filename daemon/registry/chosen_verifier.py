"""Which verifiers may compute here: of those that the config leaves, the ones that are installed and fit."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from pilotfish.daemon.config.types import REMEDIES, STOCK_ENGINE
from pilotfish.daemon.registry import accelerators
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import EngineError, EngineMissing, PilotfishError
from pilotfish.hooks.protocols import CertifiableVerifier, TellsDevices, Verifier
from pilotfish.hooks.types import EngineOptions

log = logging.getLogger("pilotfish.registry")


def chosen_verifier(registry: Registry, name: str) -> Verifier:
    """The verifier `name`. Raises EngineError with the remedy when there is none."""
    verifier = registry.verifier(name)
    if verifier is None:
        remedy = REMEDIES.get(name)
        raise EngineMissing(f"no verifier is named {name!r}" + (f"; install it with: {remedy}" if remedy else ""))
    return verifier


def usable_verifier(registry: Registry, name: str, state_dir: Path | None) -> Verifier:
    """The verifier `name`, whose library was found to fit; loads no engine into this process.

    Raises EngineMissing when it is not there, any other PilotfishError or an OSError when it cannot be used.
    """
    verifier = chosen_verifier(registry, name)
    if isinstance(verifier, CertifiableVerifier):
        verifier.fingerprint(state_dir)
    return verifier


def fit_verifiers(registry: Registry, names: Sequence[str], options: EngineOptions) -> tuple[Verifier, ...]:
    """Those of `names` that can compute after this launch, in their order. Loads no engine into this process.

    One that is not installed is left out, one that is and cannot be used costs a line in `registry.problems`. Raises
    EngineError with the remedies when none is left.
    """
    found: list[Verifier] = []
    missing: list[str] = []
    unfit: list[str] = []
    for name in names:
        try:
            found.append(usable_verifier(registry, name, options.state_dir))
        except EngineMissing as error:
            missing.append(str(error))
        except (PilotfishError, OSError) as error:
            unfit.append(f"engine {name}: {error}")
    if not found:
        raise EngineError("no engine can compute here: " + "; ".join([*unfit, *missing]))
    for remark in unfit:
        registry.remark(remark)
    return _with_the_device(registry, found, options)


def _with_the_device(registry: Registry, found: Sequence[Verifier], options: EngineOptions) -> tuple[Verifier, ...]:
    """Where layers may go to an accelerator, only the engines that have what the first one with any has.

    Where none has any and the launch asks for one that the machine shows, only stock's, as it comes. Raises EngineError
    when none is left.
    """
    if options.gpu_layers == 0 or (len(found) == 1 and options.gpu_layers is None):
        return tuple(found)
    devices = {verifier.name: devices_of(registry, verifier) for verifier in found}
    wanted = next((there for there in devices.values() if there), ())
    if wanted:
        kept = tuple(verifier for verifier in found if set(wanted) <= set(devices[verifier.name]))
        why = f"layers may go to {', '.join(wanted)}, and its build does not compute there"
    elif options.gpu_layers and (shown := accelerators.shown()):
        kept = tuple(verifier for verifier in found if verifier.name == STOCK_ENGINE)
        why = f"the launch puts layers on an accelerator ({shown[0]}), and its build computes on processors only"
    else:
        return tuple(found)
    left_out = [f"engine {verifier.name}: {why}" for verifier in found if verifier not in kept]
    for line in left_out:
        log.info("%s", line)
    if not kept:
        raise EngineError("no engine can compute here: " + "; ".join(left_out))
    return kept


def devices_of(registry: Registry, verifier: Verifier) -> tuple[str, ...]:
    """The accelerators that it may put layers on; none, and a line in `registry.problems`, where it cannot tell."""
    try:
        return verifier.devices() if isinstance(verifier, TellsDevices) else ()
    except (PilotfishError, OSError) as error:
        registry.remark(f"engine {verifier.name}: {error}")
        return ()
