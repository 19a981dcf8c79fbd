"""From an engine with a model in it to what answers requests, and the card that describes it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from pilotfish.daemon.certify.lookup import Attempt, LaneLookup
from pilotfish.daemon.chat.chat_template import CHATML, ChatTemplate
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.core.generator import Generator, known_costs
from pilotfish.daemon.drafters.drafting import pool_for
from pilotfish.daemon.drafters.memory_budget import memory_budget_for
from pilotfish.daemon.drafters.promotions import Promotions
from pilotfish.daemon.registry.registry import Registry
from pilotfish.daemon.runner.conversation_memory import keep_conversations, remember_conversations
from pilotfish.daemon.runner.described_model import Described, described
from pilotfish.daemon.runner.gain import (
    NothingToGain,
    awaits_certificate,
    demand_company,
    demand_drafts,
    demand_price,
)
from pilotfish.daemon.runner.launch_arguments import Launch
from pilotfish.daemon.runner.long_prompts import read_long_prompts
from pilotfish.daemon.runner.model_card import ModelCard
from pilotfish.daemon.runner.projector import projector_of
from pilotfish.hooks.protocols import HasSlots, TargetEngine
from pilotfish.hooks.types import EngineOptions, TargetPin

log = logging.getLogger("pilotfish.runner")

_VOCAB_TYPES = {"llama": 1, "gpt2": 2, "bert": 3, "t5": 4, "rwkv": 5, "plamo2": 6}  # llama.h's llama_vocab_type


@dataclass(frozen=True, slots=True)
class LoadedTarget:
    """An engine that loaded `pin`, and how it came to be the one: before it, `plain` had loaded it and found no lane.
    `before` are the bytes that the process held before, `job` is what would certify the model."""

    pin: TargetPin
    registry: Registry
    options: EngineOptions
    found: LaneLookup
    made: Attempt
    engine: TargetEngine
    before: int
    job: str
    plain: Attempt | None = None


def assembled(
    loaded: LoadedTarget, launch: Launch, config: Config, state_dir: Path, *, must_gain: bool
) -> tuple[Generator, ModelCard]:
    """With `must_gain`, raises NothingToGain where that turns out, and frees the engine."""
    engine, pin, options, verifier = loaded.engine, loaded.pin, loaded.options, loaded.made.verifier
    certificate = loaded.found.certificate if loaded.made is loaded.found.attempts[0] else None
    _tell(loaded, certified=certificate is not None)
    costs = known_costs(engine, certificate.costs if certificate else ())
    card = replace(_card(launch, pin, engine, described(launch.model)), certification=loaded.job)
    memory = memory_budget_for(pin, verifier, options, loaded.before)
    remember_conversations(engine, launch.cache_ram, config.engine.cache_ram_share, memory.free)
    read_long_prompts(engine, config.engine.prompts, memory.free)
    keep_conversations(engine, config.engine.cache_disk_mib << 20, state_dir)
    pool = pool_for(engine, pin, verifier, options, config, before=loaded.before, state_dir=state_dir)
    promotions = Promotions(state_dir)
    generator = Generator(engine, pin, loaded.registry, config, costs=costs, pool=pool, promotions=promotions)
    if must_gain:
        _demand_gain(generator, loaded)
    return generator, card


def _tell(loaded: LoadedTarget, *, certified: bool) -> None:
    lane = loaded.engine.lane
    log.info(
        "%s: engine %s, lane %s, widths up to %d, parity %s, %s %s",
        loaded.pin.name,
        loaded.made.verifier.name,
        lane.name,
        lane.max_width,
        lane.parity,
        "certified" if certified else "not certified",
        lane.reason,
    )


def _demand_gain(generator: Generator, loaded: LoadedTarget) -> None:
    awaited = awaits_certificate(loaded.engine.lane.parity, loaded.job)
    try:
        demand_price(loaded.made, loaded.engine.lane, loaded.found, plain=loaded.plain, job=loaded.job)
        demand_company(loaded.engine, loaded.made, loaded.found, job=loaded.job)
        demand_drafts(generator.standing, loaded.found, awaited=awaited, job=loaded.job)
    except NothingToGain:
        generator.close()
        raise


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
