"""How prompts of a model must begin: with BOS exactly once, by the template, the tokenizer, or whoever writes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pilotfish.hooks.types import TokenizerPin
from pilotfish.manifests.fingerprints import tokenizer_pin
from pilotfish.manifests.gguf import GGUFMetadata


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


def beginning_of(metadata: GGUFMetadata, state_dir: Path | None) -> PromptBeginning:
    """From a weight file's metadata alone."""
    pin = tokenizer_pin(metadata.path, state_dir, metadata)
    bos = special_text(metadata, pin)
    return PromptBeginning(bos, pin.add_bos, template_begins(metadata.chat_template, bos))


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
