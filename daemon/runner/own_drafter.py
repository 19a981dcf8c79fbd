"""A launch that names a draft model: a complete small one drafts in our lane, as the drafter `llama`.

Layers that need the target's activations (MTP, EAGLE, DFlash) are not such a model: libllama hands activations to its
own server's speculation only, so those launches are stock's.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pilotfish.daemon.config.types import Config
from pilotfish.hooks.errors import BrokenModel, UsageError

DRAFTER = "llama"
FLAGS = ("-md", "--model-draft", "--spec-draft-model")
_WAY, _BY_ITSELF, _OF_ACTIVATIONS = "--spec-type", "draft-simple", "draft-mtp"


def by_itself(argv: Sequence[str]) -> list[str]:
    """`argv`, in which a draft model of a file of its own drafts by itself.

    Ollama says `draft-mtp` of every draft layer that is none of DFlash's. With a complete model a llama-server ends at
    that; whether the file is one is looked at where the flag is read (`draft_model`).
    """
    words = list(argv)
    if not any(word in FLAGS for word in words):
        return words
    meant = {(_WAY, _OF_ACTIVATIONS): _BY_ITSELF}
    return [*words[:1], *(meant.get(pair, pair[1]) for pair in itertools.pairwise(words))]


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
