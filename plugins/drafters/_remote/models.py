"""Which models a server has, by OpenAI's `/v1/models`, which all of them answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pilotfish.hooks.errors import ModelNotFound, ProtocolViolation
from pilotfish.plugins.drafters._remote.config import RemoteConfig
from pilotfish.plugins.drafters._remote.http import Connections


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model as its server lists it. `n_vocab` is 0 where the server does not say."""

    name: str
    owner: str = ""
    n_vocab: int = 0


def served_model(connections: Connections, config: RemoteConfig) -> ListedModel:
    """The model that the config names, or the first there is. Raises ModelNotFound naming what there is instead."""
    url = config.address.url
    listed = connections.ask("GET", "/v1/models", within=config.timeout).body.get("data")
    if not isinstance(listed, list) or not all(
        isinstance(one, dict) and isinstance(one.get("id"), str) for one in listed
    ):
        raise ProtocolViolation(f"{url}: its /v1/models cannot be read; is it a completion or chat server?")
    models = [_model(one) for one in listed]
    wanted = [model for model in models if not config.model or _equal(model.name, config.model)]
    if not wanted:
        there = ", ".join(model.name for model in models) or "none"
        raise ModelNotFound(
            f"{url}: has no model {config.model!r}; it has: {there}. Name one of them as drafters.remote.model"
        )
    return wanted[0]


def _model(listed: dict[str, Any]) -> ListedModel:
    meta = listed.get("meta")
    n_vocab = meta.get("n_vocab", 0) if isinstance(meta, dict) else 0
    return ListedModel(listed["id"], str(listed.get("owned_by", "")), n_vocab if type(n_vocab) is int else 0)


def _equal(name: str, wanted: str) -> bool:
    return name in (wanted, f"{wanted}:latest")
