"""An embedding that is also the output matrix: where weights are not mapped, ik_llama.cpp reads it once for each.

Ollama's launches on processors do not map weights. llama.cpp has it once all the same (docs/lab-notes.md).
"""

from __future__ import annotations

from pilotfish.hooks.types import TargetPin
from pilotfish.manifests.gguf_header import read_header

_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"


def read_twice(pin: TargetPin) -> int:
    """Bytes that the weights of `pin` take beyond their files when they are not mapped. Raises BrokenModel."""
    tensors = {tensor.name: tensor for weight in pin.weights for tensor in read_header(weight.path, pin.name).tensors}
    return 0 if _OUTPUT in tensors or _EMBEDDING not in tensors else tensors[_EMBEDDING].size
