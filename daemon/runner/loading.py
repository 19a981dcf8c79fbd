"""From a launch to a loaded model: registry, pin, engine, generator, and the card that describes it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pilotfish.daemon.certify.background import job_line
from pilotfish.daemon.certify.lookup import Attempt, LaneLookup, engine_environment, find_lane
from pilotfish.daemon.certify.suitability import Suitability
from pilotfish.daemon.chat.chat_template import CHATML, ChatTemplate
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.core.costs import CostModel
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.core.target_session import going_back_of
from pilotfish.daemon.drafters.drafting import pool_for
from pilotfish.daemon.drafters.memory_bounds import private_bytes
from pilotfish.daemon.drafters.memory_budget import memory_budget_for
from pilotfish.daemon.drafters.promotions import Promotions
from pilotfish.daemon.registry.chosen_verifier import fit_verifiers
from pilotfish.daemon.registry.registry import Registry
from pilotfish.daemon.runner.conversation_memory import keep_conversations, remember_conversations
from pilotfish.daemon.runner.described_model import Described, described
from pilotfish.daemon.runner.gain import (
    NothingToGain,
    awaits_certificate,
    demand_device,
    demand_drafts,
    demand_lane,
    demand_memory,
)
from pilotfish.daemon.runner.launch_arguments import Launch
from pilotfish.daemon.runner.long_prompts import read_long_prompts
from pilotfish.daemon.runner.model_card import ModelCard
from pilotfish.daemon.runner.projector import projector_of
from pilotfish.hooks.errors import BrokenModel, EngineError
from pilotfish.hooks.protocols import CertifiableVerifier, HasSlots, TargetEngine, Verifier
from pilotfish.hooks.types import EngineOptions, TargetPin
from pilotfish.manifests.pins import pin_file

log = logging.getLogger("pilotfish.runner")

MORE_TIME = 0.9  # of the budget that certifying in idle moments has; what took less may find more then
_VOCAB_TYPES = {"llama": 1, "gpt2": 2, "bert": 3, "t5": 4, "rwkv": 5, "plamo2": 6}  # llama.h's llama_vocab_type


def load(
    launch: Launch,
    config: Config,
    state_dir: Path,
    *,
    must_gain: bool = False,
    stock_devices: Callable[[], Sequence[str]] = tuple,
) -> tuple[Generator, ModelCard]:
    """Blocks until the model is ready, on the first engine that loads it and has something to gain with it.

    Raises BrokenModel or EngineError, naming the file. With `must_gain`, for a launch that stock could serve, raises
    NothingToGain as soon as it turns out. `stock_devices` asks that server for the accelerators that it computes on.
    """
    registry = Registry.load(config)
    options = launch.engine_options(state_dir)
    pin = pin_file(launch.model, state_dir, blob=launch.blob)
    verifiers = fit_verifiers(registry, config.engines_for(pin.format), options)
    if must_gain:
        demand_device(registry, verifiers, options, stock_devices)
    if config.why_not_chosen:
        log.info("%s: %s", pin.name, config.why_not_chosen)
    registry.notify_pinned(pin)
    found = find_lane(pin, verifiers, options, config.speculation.parity)
    if must_gain:
        demand_lane(found, state_dir)
    before = private_bytes()
    made, engine = _first_that_gains(found.attempts, pin, options, registry, must_gain=must_gain)
    certificate = found.certificate if made is found.attempts[0] else None
    lane = engine.lane
    log.info(
        "%s: engine %s, lane %s, widths up to %d, parity %s, %s %s",
        pin.name,
        made.verifier.name,
        lane.name,
        lane.max_width,
        lane.parity,
        "certified" if certificate else "not certified",
        lane.reason,
    )
    costs = CostModel(lane.widths, going_back_of(engine))
    costs.seed(certificate.costs if certificate else ())
    budget, names = config.engine.certify_budget_s, [verifier.name for verifier in verifiers]
    wanted = _worth_certifying(found, budget)
    job = job_line(pin, options, config.speculation.parity, names, budget) if wanted else ""
    card = replace(_card(launch, pin, engine, described(launch.model)), certification=job)
    memory = memory_budget_for(pin, made.verifier, options, before)
    remember_conversations(engine, launch.cache_ram, config.engine.cache_ram_share, memory.free)
    read_long_prompts(engine, config.engine.prompts, memory.free)
    keep_conversations(engine, config.engine.cache_disk_mib << 20, state_dir)
    pool = pool_for(engine, pin, made.verifier, options, config, before=before, state_dir=state_dir)
    promotions = Promotions(state_dir)
    generator = Generator(engine, pin, registry, config, costs=costs, pool=pool, promotions=promotions)
    if must_gain:
        try:
            demand_drafts(generator.standing, found, awaited=awaits_certificate(lane.parity, job), job=job)
        except NothingToGain:
            generator.close()
            raise
    return generator, card


def _worth_certifying(found: LaneLookup, budget: float) -> bool:
    """Not where a certificate that lacks something had as much time already."""
    made = found.certificate
    return bool(found.identity and budget) and (made is None or made.seconds < MORE_TIME * budget)


def _first_that_gains(
    attempts: Sequence[Attempt], pin: TargetPin, options: EngineOptions, registry: Registry, *, must_gain: bool
) -> tuple[Attempt, TargetEngine]:
    """The first engine whose lane is wider than one token; where none has such a lane, one that loads the model.

    Raises what the first engine raised when none loads it, and NothingToGain as `load`.
    """
    first: BrokenModel | EngineError | None = None
    plain: Attempt | None = None
    for attempt in attempts:
        try:
            engine = _loaded(attempt, pin, options, must_gain=must_gain)
        except (BrokenModel, EngineError) as error:
            first = first or error
            if len(attempts) > 1:
                _let_others_know(attempt.verifier, pin, options, registry, error)
            continue
        if engine.lane.max_width > 1 or attempt.lane is not None or attempt is attempts[-1]:
            return attempt, engine
        log.info("%s: engine %s decodes it plainly: %s", pin.name, attempt.verifier.name, engine.lane.reason)
        plain = plain or attempt
        engine.close()
    if plain is not None:
        return plain, _loaded(plain, pin, options, must_gain=must_gain)
    assert first is not None
    raise first


def _loaded(attempt: Attempt, pin: TargetPin, options: EngineOptions, *, must_gain: bool) -> TargetEngine:
    with engine_environment(attempt.lane):
        if must_gain:
            demand_memory(pin, attempt.verifier, options)
        return attempt.verifier.load(pin, attempt.lane, options)


def _let_others_know(
    verifier: Verifier, pin: TargetPin, options: EngineOptions, registry: Registry, error: BrokenModel | EngineError
) -> None:
    """In the status, and for the next load where the library does not take the model at all."""
    registry.remark(f"engine {verifier.name}: {error}")
    if isinstance(error, BrokenModel) and isinstance(verifier, CertifiableVerifier):
        build = {verifier.name: verifier.fingerprint(options.state_dir)}
        Suitability(pin, build, options).refuse(verifier.name, str(error))


def _card(launch: Launch, pin: TargetPin, engine: TargetEngine, metadata: Described) -> ModelCard:
    named = CHATML if launch.chat_template == "chatml" else launch.chat_template
    template = ChatTemplate.of_model(named or metadata.chat_template, pin.tokenizer, engine.tokenizer)
    return ModelCard(
        name=launch.name,
        path=str(launch.model),
        template=template,
        n_ctx=engine.n_ctx,
        n_vocab=engine.n_vocab,
        lane=engine.lane,
        adds_bos=pin.tokenizer.add_bos,
        slots=engine.slots if isinstance(engine, HasSlots) else 1,
        vocab_type=_VOCAB_TYPES.get(pin.tokenizer.model, 0),
        n_ctx_train=metadata.context_length,
        n_embd=metadata.embedding_length,
        n_params=metadata.parameter_count,
        size=sum(weight.size for weight in pin.weights),
        quantization=pin.quantization,
        projector=projector_of(launch.projector),
    )
