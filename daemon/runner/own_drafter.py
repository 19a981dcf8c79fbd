"""A launch that names a draft model: a complete small one drafts in our lane, as the drafter `llama`.

Layers that need the target's activations (MTP, EAGLE, DFlash) are not such a model: libllama hands activations to its
own server's speculation only, so those launches are stock's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pilotfish.daemon.config.types import Config
from pilotfish.hooks.errors import BrokenModel, UsageError

DRAFTER = "llama"


def draft_model(flag: str, text: str) -> Path:
    """The file of a complete model. Raises UsageError for any other, so that the launch is stock's."""
    from pilotfish.manifests.draft_layers import why_not_a_model  # brings numpy along: not for every launch

    try:
        why = why_not_a_model(Path(text))
    except BrokenModel as error:
        raise UsageError(f"{flag}: {error}") from error
    if why:
        raise UsageError(f"{flag}: {why}; start the stock llama-server, which drafts with it")
    return Path(text)


def with_own_drafter(config: Config, draft: Path | None) -> Config:
    """`config` with the launch's draft model as one drafter more, unless the config has one of that kind."""
    drafters = config.drafters
    if draft is None or DRAFTER in drafters.order:
        return config
    tables = {**drafters.tables, DRAFTER: {**drafters.tables.get(DRAFTER, {}), "model": str(draft)}}
    return replace(config, drafters=replace(drafters, order=(*drafters.order, DRAFTER), tables=tables))
