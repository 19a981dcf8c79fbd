"""What one architecture's tiny model consists of: keys and tensors, as a value.

A tensor is named by its member of `gguf.MODEL_TENSOR`, with `.bias` where it is one and `.` where its name in the file
has no suffix, and its shape is numpy's: rows first. The dimensions are multiples of 256 wherever an engine allows it,
because every number format has blocks of at most as many: a model quantized to Q4_K_M really has Q4_K weights then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

Shape = tuple[int, ...]
Tensors = Mapping[str, Shape]
Value = bool | int | float | str | Sequence[int]

EMBD = 256  # the width of the residual stream
HEADS, HEADS_KV, HEAD = 4, 2, 64
Q, KV = HEADS * HEAD, HEADS_KV * HEAD
HIDDEN = 512
EXPERTS, EXPERTS_USED = 4, 2
WINDOW = 128  # tokens that the layers of a sliding window see
VOCAB = -1  # in a shape: as many as the vocabulary has


class Words(Enum):
    """Whose vocabulary a model has. The packages that carry them are test extras; nothing of them is kept here."""

    SMOLLM2 = "smollm2"  # 49,152 tokens, byte pairs
    GEMMA = "gemma"  # 262,144 tokens, sentencepiece


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture. `library` names models of Ollama's library that have it, and what it is called in their files
    where that is another name.

    `keys` are below `<name>.`; `layers` are the blocks in order, `whole` the tensors outside of them. `embedding` is
    the spread of the token embeddings. Where these make the output, too, the last norm is scaled, so that the logits
    are as far apart as those of a trained model.
    """

    name: str
    library: str
    layers: Sequence[Tensors]
    keys: Mapping[str, Value]
    whole: Tensors = field(default_factory=dict)
    words: Words = Words.SMOLLM2
    entries: int | None = None  # of the vocabulary, from its beginning; None: all
    embedding: float = 0.15
    window: int = 0  # tokens; 0 where all layers see everything, or where it is too long for a tiny test
    note: str = ""  # what is not as in the real models, for a person

    @property
    def id(self) -> str:
        """What its files say: `general.architecture`. A second kind of the same has a name with a blank in it."""
        return self.name.partition(" ")[0]

    @property
    def ties_output(self) -> bool:
        """Whether the token embeddings are the output matrix as well."""
        return "OUTPUT" not in self.whole


@dataclass(frozen=True, slots=True)
class NotMade:
    """An architecture of Ollama's library without a tiny model, and the reason."""

    name: str
    library: str
    reason: str
