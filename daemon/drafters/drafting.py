"""Everything that drafts for one loaded target on this machine, put together: runners and the lab do it alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.drafters.hidden_feed import hidden_shape_of
from pilotfish.daemon.drafters.hosted_drafter import HostedDrafter
from pilotfish.daemon.drafters.local_host import LocalHost
from pilotfish.daemon.drafters.memory_budget import memory_budget_for
from pilotfish.daemon.drafters.pool import DrafterPool
from pilotfish.hooks.protocols import TargetEngine, Verifier
from pilotfish.hooks.types import EngineOptions, TargetPin
from pilotfish.hooks.vocabulary import TokenizerVocabulary


def pool_for(
    engine: TargetEngine,
    pin: TargetPin,
    verifier: Verifier,
    options: EngineOptions,
    config: Config,
    *,
    before: int,
    state_dir: Path | None = None,
) -> DrafterPool:
    """The pool of `engine`, which `verifier` loaded with `options`; `before` is `private_bytes()` ahead of that."""
    budget = memory_budget_for(pin, verifier, options, before)
    beside = replace(options, n_ctx=engine.n_ctx, slots=1, far_ends=(), tensor_split=())
    return DrafterPool(
        pin,
        TokenizerVocabulary(engine.tokenizer, pin.tokenizer),
        engine.n_vocab,
        options=beside,  # a drafter's sessions are its own affair, and it computes here
        host=LocalHost(state=state_dir, owner=f"drafts for {pin.name}"),
        admit=budget.admit,
        pressed=budget.pressed,
        wrap=lambda drafter: HostedDrafter(drafter, config),
        hidden=hidden_shape_of(engine),
        engine=engine.engine.name,
    )
