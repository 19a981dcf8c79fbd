"""All architectures that have a tiny model, and those that have none.

The list is from both sides: what the bundled libllama loads, and what the files of Ollama's library are, by the names
in them. Models that Ollama only offers in its cloud are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.daemon.lab.tiny_models.architecture import Architecture, NotMade
from pilotfish.daemon.lab.tiny_models.dense import DENSE_ARCHITECTURES
from pilotfish.daemon.lab.tiny_models.sparse import SPARSE_ARCHITECTURES
from pilotfish.daemon.lab.tiny_models.stateful import STATEFUL_ARCHITECTURES
from pilotfish.daemon.lab.tiny_models.windowed import WINDOWED_ARCHITECTURES
from pilotfish.hooks.errors import UsageError

KINDS = {
    "Attention to everything": DENSE_ARCHITECTURES,
    "Mixtures of experts": SPARSE_ARCHITECTURES,
    "Sliding windows": WINDOWED_ARCHITECTURES,
    "Running states": STATEFUL_ARCHITECTURES,
}
ARCHITECTURES = tuple(architecture for kind in KINDS.values() for architecture in kind)

NOT_MADE = (
    NotMade("mllama", "llama3.2-vision", "libllama has no such architecture: Ollama's own engine computed it"),
    NotMade("deepseekocr, glmocr", "deepseek-ocr, glm-ocr", "made for pages as images; text alone is not their use"),
    NotMade("nemotron_h_omni", "models that hear and see", "its text part is nemotron_h_moe's"),
    NotMade("laguna", "laguna", "added to llama.cpp by Ollama itself, lately under the same name; not declared yet"),
    NotMade("bert, nomic-bert, gemma-embedding", "all embedding models", "they do not generate text"),
    NotMade("gemma4-assistant, eagle3, dflash", "layers that draft", "drafters of another model, not models"),
)


def architectures(names: Sequence[str] = ()) -> list[Architecture]:
    """Those of these names, all where none is named. Raises UsageError naming the choices."""
    known = {architecture.name: architecture for architecture in ARCHITECTURES}
    for name in names:
        if name not in known:
            raise UsageError(f"no tiny model of {name}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(ARCHITECTURES)
