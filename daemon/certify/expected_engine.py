"""Which engine would compute a model if it were loaded now, for a person."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pilotfish.daemon.certify.certificate import CertificateStore, is_of_here
from pilotfish.daemon.certify.lookup import find_lane
from pilotfish.daemon.config.types import TENSORS, Config
from pilotfish.daemon.registry.chosen_verifier import fit_verifiers
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, TargetPin

EngineOf = Callable[[TargetPin], str]


def engine_of(config: Config, state_dir: Path | None) -> EngineOf:
    """A function that names the engine of a model, and why that one; where none can compute, it says what to do.

    Launches that put layers on an accelerator may have another: Ollama decides that when it loads the model.
    """
    registry, options = Registry.built_in(config), EngineOptions(state_dir=state_dir)

    def named(pin: TargetPin) -> str:
        mine = config.for_model(pin.name)
        far_ends = mine.engine.rpc if pin.format != TENSORS else ()
        try:
            verifiers = fit_verifiers(registry, mine.engines_for(pin.format), options)
        except EngineError as error:
            return str(error)
        found = find_lane(pin, verifiers, options, mine.speculation.parity)
        certificate = None if far_ends else found.certificate
        if found.identity and certificate is None:
            certificate = next(
                (
                    made
                    for made in CertificateStore(state_dir).of_weights(found.identity.weights)
                    if made.identity.engines == found.identity.engines and is_of_here(made.identity.device, far_ends)
                ),
                None,
            )
        if certificate:
            where = f"over {', '.join(far_ends)}" if far_ends else "here"
            return f"{certificate.lane.setting.engine} ({certificate.engine}), as measured {where}"
        if far_ends:
            return f"{found.attempts[0].verifier.name}, over {', '.join(far_ends)}"
        why = f": {found.why}" if found.why else ""
        return found.attempts[0].verifier.name + why

    return named
