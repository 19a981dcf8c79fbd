"""What a bundled drafter is: a complete small model, or layers that need the activations of the model beside them."""

from __future__ import annotations

from pathlib import Path

from pilotfish.manifests.assistant import NEED_ACTIVATIONS
from pilotfish.manifests.gguf import GGUFMetadata, describe
from pilotfish.manifests.gguf_header import Header, read_header

_COMPLETE = ("token_embd.weight", "blk.0.attn_norm.weight")  # a layer that drafts has a part of these at most


def why_not_a_model(path: Path, model: str = "") -> str:
    """Why a draft model's file cannot draft by itself; empty when it can. Raises BrokenModel."""
    header = read_header(path, model)
    return _why_not(header, describe(header))


def _why_not(header: Header, metadata: GGUFMetadata) -> str:
    architecture = metadata.architecture
    if any(word in architecture for word in NEED_ACTIVATIONS):
        return f"its draft layers ({architecture}) need the model's activations"
    names = {tensor.name for tensor in header.tensors}
    if not names.issuperset(_COMPLETE) or "tokenizer.ggml.tokens" not in metadata.values:
        return "its draft layer is no complete model"
    return ""
