"""How large an enlarged model is: its widths, heads and blocks, and the shape of each tensor."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pilotfish.hooks.errors import UsageError
from pilotfish.manifests.gguf_header import Header

Shape = tuple[int, ...]  # rows first

WIDER = 4  # times the residual stream; only even powers of two leave the norms exact
NORMS = ("attn_norm.weight", "ffn_norm.weight", "output_norm.weight")
_STEP = 256  # hidden rows come in blocks of the longest number format
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
ARCHITECTURE = "llama"


@dataclass(frozen=True, slots=True)
class Likeness:
    """The dimensions of a llama model."""

    embd: int
    heads: int
    heads_kv: int
    head: int
    hidden: int
    blocks: int
    vocab: int

    @classmethod
    def of(cls, header: Header) -> Likeness:
        """Of a GGUF. Raises UsageError for another architecture, and for tensors that a llama need not have."""
        keys = header.values
        if keys.get("general.architecture") != ARCHITECTURE:
            raise UsageError(f"{header.path}: only models of the architecture {ARCHITECTURE!r} can be enlarged")

        def number(key: str) -> int:
            value = keys.get(f"{ARCHITECTURE}.{key}")
            if not isinstance(value, int):
                raise UsageError(f"{header.path} does not say {key}; use a complete GGUF")
            return value

        heads, embd = number("attention.head_count"), number("embedding_length")
        vocab = next(tensor.shape[1] for tensor in header.tensors if tensor.name == "token_embd.weight")
        own = cls(
            embd,
            heads,
            number("attention.head_count_kv"),
            embd // heads,
            number("feed_forward_length"),
            number("block_count"),
            vocab,
        )
        for tensor in header.tensors:
            if own.shape_of(tensor.name) != tensor.shape[::-1]:
                raise UsageError(f"{header.path}: {tensor.name} is none that can be enlarged")
        return own

    @property
    def parameters(self) -> int:
        """All weights, norms left out."""
        heads = self.head * (self.heads + self.heads_kv)
        return self.embd * (self.vocab + self.blocks * (2 * heads + 3 * self.hidden))

    def widened(self) -> Likeness:
        """With a wider residual stream, and as many more heads."""
        return replace(self, embd=WIDER * self.embd, heads=WIDER * self.heads, heads_kv=WIDER * self.heads_kv)

    def filled(self, parameters: float, blocks: int) -> Likeness:
        """With `blocks` blocks, and as many hidden rows as lead to about so many parameters, but no fewer."""
        deep = replace(self, blocks=blocks)
        hidden = self.hidden + (parameters - deep.parameters) / (3 * self.embd * blocks)
        return replace(deep, hidden=max(self.hidden, int(hidden) // _STEP * _STEP))

    def shape_of(self, name: str) -> Shape | None:
        """The shape of a tensor by its name in the file; None for one that is none of a plain llama's."""
        found = _BLOCK.fullmatch(name)
        queries, keys = self.heads * self.head, self.heads_kv * self.head
        shapes: Mapping[str, Shape] = {
            "token_embd.weight": (self.vocab, self.embd),
            "output.weight": (self.vocab, self.embd),
            "attn_q.weight": (queries, self.embd),
            "attn_k.weight": (keys, self.embd),
            "attn_v.weight": (keys, self.embd),
            "attn_output.weight": (self.embd, queries),
            "ffn_gate.weight": (self.hidden, self.embd),
            "ffn_up.weight": (self.hidden, self.embd),
            "ffn_down.weight": (self.embd, self.hidden),
            **dict.fromkeys(NORMS, (self.embd,)),
        }
        return shapes.get(found[2] if found else name)

    def metadata(self) -> Iterator[tuple[str, int]]:
        """What a file says of these dimensions, below the architecture."""
        yield "embedding_length", self.embd
        yield "attention.head_count", self.heads
        yield "attention.head_count_kv", self.heads_kv
        yield "feed_forward_length", self.hidden
        yield "block_count", self.blocks


def block_of(name: str) -> tuple[int, str] | None:
    """The number of the block that a tensor is in, and its name there; None outside of them."""
    found = _BLOCK.fullmatch(name)
    return (int(found[1]), found[2]) if found else None
