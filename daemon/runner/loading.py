"""From a launch to a loaded model: registry, pin, engine, generator, and the card that describes it."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.daemon.certify.background import job_line
from pilotfish.daemon.certify.lookup import Attempt, LaneLookup, engine_environment, find_lane
from pilotfish.daemon.certify.made_again import MadeAgain
from pilotfish.daemon.certify.suitability import Suitability
from pilotfish.daemon.config.types import TENSORS, Config
from pilotfish.daemon.drafters.memory_bounds import private_bytes
from pilotfish.daemon.registry.chosen_verifier import fit_verifiers
from pilotfish.daemon.registry.registry import Registry
from pilotfish.daemon.registry.spread import with_far_ends
from pilotfish.daemon.runner.gain import (
    demand_device,
    demand_lane,
    demand_memory,
)
from pilotfish.daemon.runner.launch_arguments import Launch
from pilotfish.hooks.errors import BrokenModel, EngineError
from pilotfish.hooks.protocols import CertifiableVerifier, TargetEngine, Verifier
from pilotfish.hooks.types import EngineOptions, TargetPin
from pilotfish.manifests.manifest_paths import name_at
from pilotfish.manifests.pins import pin_file

if TYPE_CHECKING:
    from pilotfish.daemon.core.generator import Generator
    from pilotfish.daemon.runner.model_card import ModelCard

log = logging.getLogger("pilotfish.runner")

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
MORE_TIME = 0.9  # of the budget that certifying in idle moments has; what took less may find more then


def load(
    launch: Launch,
    config: Config,
    state_dir: Path,
    options: EngineOptions | None = None,
    *,
    must_gain: bool = False,
    stock_devices: Callable[[], Sequence[str]] = tuple,
    opening: Callable[[], None] = lambda: None,
) -> tuple[Generator, ModelCard]:
    """Blocks until the model is ready, on the first engine that loads it and has something to gain with it.

    `options` are those of the launch with the config's far ends, which are looked at here where they were not before.
    Raises BrokenModel or EngineError, naming the file. With `must_gain`, for a launch that stock could serve, raises
    NothingToGain as soon as it turns out. `stock_devices` asks that server for the accelerators that it computes on.
    `opening` is called where the engine's library is about to work for a while.
    """
    _import_numpy()
    registry = Registry.load(config)
    options = options or with_far_ends(launch.engine_options(state_dir), config.engine)
    model_format = TENSORS if name_at(launch.model) else "gguf"  # only theirs are named by their manifest
    verifiers = fit_verifiers(registry, config.engines_for(model_format), options)
    if must_gain:
        demand_device(registry, verifiers, options, stock_devices)
    pin = pin_file(launch.model, state_dir, blob=launch.blob)
    if config.why_not_chosen:
        log.info("%s: %s", pin.name, config.why_not_chosen)
    registry.notify_pinned(pin)
    found = find_lane(pin, verifiers, options, config.speculation.parity)
    if must_gain:
        demand_lane(found, state_dir)
    before = private_bytes()  # what is imported meanwhile, 15 MB, counts as the model's: a tenth of what is kept free

    def loaded(attempt: Attempt) -> TargetEngine:
        with engine_environment(attempt.lane):
            if must_gain:
                demand_memory(pin, attempt.verifier, options)
            opening()
            return attempt.verifier.load(pin, attempt.lane, options)

    made, engine, plain = _first_that_gains(found.attempts, pin, options, registry, loaded)
    budget = 0 if options.far_ends else config.engine.certify_budget_s  # a far end serves one process at a time
    wanted = _worth_certifying(found, budget, pin, state_dir)
    names = [verifier.name for verifier in verifiers]
    job = job_line(pin, options, config.speculation.parity, names, config.engine.certify_budget_s) if wanted else ""
    # Imported now: while the engine's library was at work, the server's thread imported nearly all of it.
    from pilotfish.daemon.runner.assembling import LoadedTarget, assembled

    target = LoadedTarget(pin, registry, options, found, made, engine, before, job, plain)
    return assembled(target, launch, config, state_dir, must_gain=must_gain)


def _import_numpy() -> None:
    """With one thread for its OpenBLAS, unless somebody asked for more: to start a team takes as long as the rest of
    the import, and nothing here has matrices multiplied by it.

    The environment stays what it was, because the stock server may inherit it.
    """
    if _BLAS_THREADS in os.environ:
        return
    os.environ[_BLAS_THREADS] = "1"
    try:
        importlib.import_module("numpy")
    finally:
        del os.environ[_BLAS_THREADS]


def _worth_certifying(found: LaneLookup, budget: float, pin: TargetPin, state_dir: Path) -> bool:
    """Not where a certificate that lacks an engine had as much time already. One that does not reach to the context's
    end may have lost its time to others on a busy machine, and is made again a few times."""
    made = found.certificate
    if not found.identity or not budget or made is None:
        return bool(found.identity and budget)
    if made.cut_short:
        return MadeAgain(state_dir, pin.path, found.identity.key).due
    return made.seconds < MORE_TIME * budget


def _first_that_gains(
    attempts: Sequence[Attempt],
    pin: TargetPin,
    options: EngineOptions,
    registry: Registry,
    loaded: Callable[[Attempt], TargetEngine],
) -> tuple[Attempt, TargetEngine, Attempt | None]:
    """The first engine whose lane is wider than one token; where none has such a lane, one that loads the model. With
    the first one that has none.

    Raises what the first engine raised when none loads it, and NothingToGain as `load`.
    """
    first: BrokenModel | EngineError | None = None
    plain: Attempt | None = None
    for attempt in attempts:
        try:
            engine = loaded(attempt)
        except (BrokenModel, EngineError) as error:
            first = first or error
            if len(attempts) > 1:
                _let_others_know(attempt.verifier, pin, options, registry, error)
            continue
        if engine.lane.max_width > 1 or attempt.lane is not None or attempt is attempts[-1]:
            return attempt, engine, plain
        log.info("%s: engine %s decodes it plainly: %s", pin.name, attempt.verifier.name, engine.lane.reason)
        plain = plain or attempt
        engine.close()
    if plain is not None:
        return plain, loaded(plain), plain
    assert first is not None
    raise first


def _let_others_know(
    verifier: Verifier, pin: TargetPin, options: EngineOptions, registry: Registry, error: BrokenModel | EngineError
) -> None:
    """In the status, and for the next load where the library does not take the model at all."""
    registry.remark(f"engine {verifier.name}: {error}")
    if isinstance(error, BrokenModel) and isinstance(verifier, CertifiableVerifier):
        build = {verifier.name: verifier.fingerprint(options.state_dir)}
        Suitability(pin, build, options).refuse(verifier.name, str(error))
