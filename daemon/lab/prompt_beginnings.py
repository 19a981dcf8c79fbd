"""How prompts of a model must begin: with BOS exactly once, by the template, the tokenizer, or whoever writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish.daemon.runner.described_model import described
from pilotfish.hooks.types import TokenizerPin
from pilotfish.manifests.fingerprints import tokenizer_pin
from pilotfish.manifests.gguf import GGUFMetadata, read_metadata
from pilotfish.manifests.manifest_paths import manifest_at
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.manifests.tensor_tokenizer import layers_tokenizer_pin, tokenizer_settings


@dataclass(frozen=True, slots=True)
class PromptBeginning:
    """`bos` is the text of the beginning-of-sequence token, "" where there is none."""

    bos: str
    by_tokenizer: bool  # the tokenizer puts it in front of every prompt
    by_template: bool  # the chat template holds it

    @property
    def expected(self) -> bool:
        """Whether the model was trained on prompts that begin with it."""
        return bool(self.bos) and (self.by_tokenizer or self.by_template)


def beginning_of(path: Path, state_dir: Path | None) -> PromptBeginning:
    """From the files of a GGUF, or of the MLX model whose manifest lies at `path`, alone. Raises BrokenModel."""
    if (named := manifest_at(path)) is not None:
        layers = TensorLayers.of(named[1], named[0])
        template = described(path).chat_template
        pin, bos = layers_tokenizer_pin(layers, state_dir), _bos_token(tokenizer_settings(layers).tokenizer)
        bos = bos if pin.bos is not None else ""
    else:
        metadata = read_metadata(path)
        pin, template = tokenizer_pin(path, state_dir, metadata), metadata.chat_template
        bos = special_text(metadata, pin)
    return PromptBeginning(bos, pin.add_bos, template_begins(template, bos))


def _bos_token(settings: Mapping[str, Any]) -> str:
    """As a tokenizer_config.json has it: a text, or a table with one."""
    found = settings.get("bos_token")
    found = found.get("content") if isinstance(found, Mapping) else found
    return found if isinstance(found, str) else ""


def special_text(metadata: GGUFMetadata, pin: TokenizerPin) -> str:
    """The text of the beginning-of-sequence token; "" where there is none."""
    tokens = metadata.array("tokenizer.ggml.tokens")
    if pin.bos is None or tokens is None or not 0 <= pin.bos < tokens.count:
        return ""
    return tokens.strings()[pin.bos].decode("utf-8", "replace")


def template_begins(template: str, bos: str) -> bool:
    """Whether prompts rendered by `template` begin with `bos`.

    A text that a template holds more than once marks turns, as in ChatML, and is not about beginnings.
    """
    return bool(bos) and (template.count(bos) == 1 or "bos_token" in template)
