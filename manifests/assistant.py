"""What a bundled drafter is, told by the names of its tensors: a small model, or layers on the model's activations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pilotfish.manifests.tensor_layers import COMPANIONS

NEED_ACTIVATIONS = ("eagle", "dflash", "dspark", "mtp", "assistant")  # in names of architectures and classes
# Parts of names that only drafters on activations have: MTP heads, by their own and by llama.cpp's naming, and the
# projections from and to the model's width.
_HEADS = frozenset({"mtp", "nextn", "eh_proj", "enorm", "hnorm", "pre_projection", "post_projection"})
_FIRST = frozenset({"fc", "hidden_norm"})  # EAGLE and DFlash; elsewhere such names mean something else
_EMBEDDINGS = frozenset({"embed_tokens", "tok_embeddings", "wte", "word_embeddings", "embeddings"})
_SHOWN = 3  # names in a sentence


@dataclass(frozen=True, slots=True)
class Assistant:
    """A bundled drafter. Names are as they are stored, companions of quantized tensors left out.

    `on_activations` are the tensors that take in what the model computed inside: while there is one, it cannot draft by
    itself. `missing` are parts that a model of its own has and this has not.
    """

    tensors: tuple[str, ...]
    on_activations: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    architecture: str = ""  # as the config's draft object names it

    @property
    def needs_activations(self) -> bool:
        """Whether it reads the model's activations, by its tensors or by its architecture."""
        named = any(word in self.architecture.lower() for word in NEED_ACTIVATIONS)
        return bool(self.on_activations) or named

    @property
    def self_contained(self) -> bool:
        """Whether it is a model that can draft by itself, as far as names tell."""
        return not self.needs_activations and not self.missing

    @property
    def summary(self) -> str:
        """For a person: how much it is, what it needs, and by which evidence."""
        count = f"{len(self.tensors)} tensor{'s' if len(self.tensors) != 1 else ''}"
        what = f"{self.architecture}, {count}" if self.architecture else count
        if self.on_activations:
            return f"{what}; it needs the model's activations, by {_shown(self.on_activations)}"
        if self.needs_activations:
            return f"{what}; it needs the model's activations, by its architecture"
        if self.missing:
            return f"{what} ({_shown(self.tensors)}); no model of its own: {', '.join(self.missing)} not there"
        return f"{what}; a model of its own"


def assistant_of(tensors: Iterable[str], prefix: str = "", architecture: str = "") -> Assistant | None:
    """What tensors of these names are, of which those of a bundled model begin with `prefix`; None for no names."""
    names = _without_companions(tensors)
    if not names:
        return None
    parts = [tuple(name.removeprefix(prefix).split(".")) for name in names]
    heads = tuple(name for name, found in zip(names, parts, strict=True) if _is_head(found))
    present = {part for found in parts for part in found}
    missing = [] if present & _EMBEDDINGS else ["token embeddings"]
    missing += [] if any("layers" in found or "h" in found for found in parts) else ["layers"]
    return Assistant(names, heads, tuple(missing), architecture)


def _without_companions(tensors: Iterable[str]) -> tuple[str, ...]:
    names = list(dict.fromkeys(tensors))
    known = set(names)
    owners = {name: name.removesuffix(ending) for ending in COMPANIONS for name in names if name.endswith(ending)}
    return tuple(name for name in names if owners.get(name) not in known)


def _is_head(parts: tuple[str, ...]) -> bool:
    return parts[0] in _FIRST or any(part in _HEADS or part.startswith("pre_fc") for part in parts)


def _shown(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
