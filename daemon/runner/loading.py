"""From a launch to a loaded model: registry, pin, engine, generator, and the card that describes it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from pilotfish.daemon.certify.background import job_line
from pilotfish.daemon.certify.lookup import engine_environment, find_lane
from pilotfish.daemon.chat.chat_template import CHATML, ChatTemplate
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.core.costs import CostModel
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.drafters.drafting import pool_for
from pilotfish.daemon.drafters.memory_bounds import private_bytes
from pilotfish.daemon.drafters.memory_budget import memory_budget_for
from pilotfish.daemon.registry.chosen_verifier import chosen_verifier
from pilotfish.daemon.registry.registry import Registry
from pilotfish.daemon.runner.conversation_memory import remember_conversations
from pilotfish.daemon.runner.launch_arguments import Launch
from pilotfish.daemon.runner.model_card import ModelCard
from pilotfish.hooks.protocols import HasSlots, TargetEngine
from pilotfish.hooks.types import TargetPin
from pilotfish.manifests.gguf import GGUFMetadata, read_metadata
from pilotfish.manifests.pins import pin_file

log = logging.getLogger("pilotfish.runner")

_VOCAB_TYPES = {"llama": 1, "gpt2": 2, "bert": 3, "t5": 4, "rwkv": 5, "plamo2": 6}  # llama.h's llama_vocab_type


def load(launch: Launch, config: Config, state_dir: Path) -> tuple[Generator, ModelCard]:
    """Blocks until the model is ready. Raises BrokenModel or EngineError, naming the file."""
    registry = Registry.load(config)
    verifier = chosen_verifier(registry, config.verifier)
    pin = pin_file(launch.model, state_dir, blob=launch.blob)
    if config.why_not_chosen:
        log.info("%s: %s", pin.name, config.why_not_chosen)
    registry.notify_pinned(pin)
    options = launch.engine_options(state_dir)
    found = find_lane(pin, verifier, options, config.speculation.parity)
    before = private_bytes()
    with engine_environment(found.lane):
        engine = verifier.load(pin, found.lane, options)
    lane = engine.lane
    log.info(
        "%s: lane %s, widths up to %d, parity %s, %s %s",
        pin.name,
        lane.name,
        lane.max_width,
        lane.parity,
        "certified" if found.certificate else "not certified",
        lane.reason,
    )
    costs = CostModel(lane.widths)
    costs.seed(found.certificate.costs if found.certificate else ())
    budget = config.engine.certify_budget_s
    job = job_line(pin, options, config.speculation.parity, verifier.name, budget) if found.identity and budget else ""
    card = replace(_card(launch, pin, engine, read_metadata(launch.model)), certification=job)
    memory = memory_budget_for(pin, verifier, options, before)
    remember_conversations(engine, launch.cache_ram, config.engine.cache_ram_share, memory.free)
    pool = pool_for(engine, pin, verifier, options, config, before=before, state_dir=state_dir)
    return Generator(engine, pin, registry, config, costs=costs, pool=pool), card


def _card(launch: Launch, pin: TargetPin, engine: TargetEngine, metadata: GGUFMetadata) -> ModelCard:
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
    )
