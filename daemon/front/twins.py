"""Models without weights: what Ollama needs of a model to render its prompts, in a store of pilotfish's own.

Ollama renders a prompt only for a model that it has loaded. A twin has the name, the template and the config of a model
(which may name one of Ollama's built-in renderers), and weights of 100 kB that are loaded at once and never used. It
has no system message and no example turns: they come with each request.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from pilotfish.daemon.front.catalog import ServedModel
from pilotfish.manifests import manifest as media
from pilotfish.manifests.gguf import GGUFMetadata
from pilotfish.manifests.gguf_header import ArrayRef
from pilotfish.manifests.manifest import Manifest
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.remembered import write_atomically
from pilotfish.manifests.store import Store

_WIDTH = 32  # of the only layer
_CONTEXT = 4096  # tokens
_CONFIG = ("model_family", "model_families", "renderer", "parser", "capabilities")  # what rendering may depend on


class Twins:
    """The twins in the store at `root`, each written when it is first asked for. Everything blocks."""

    def __init__(self, root: Path, store: Store) -> None:
        self.root = root
        self._store = store
        self._written: dict[ModelName, str] = {}  # with the manifest's digest

    def write(self, model: ServedModel) -> None:
        """Have a twin of the model. Raises BrokenModel or OSError."""
        manifest = model.manifest
        if self._written.get(manifest.name) == manifest.digest:
            return
        layers = [self._add(self._weights(model), media.MODEL)]
        templates = manifest.of_type(media.TEMPLATE, media.PROMPT)
        layers += [self._add(self._store.read(layer, manifest.name), layer.media_type) for layer in templates]
        if not templates and model.metadata is None:
            layers.append(self._add(b"{{ .Prompt }}", media.TEMPLATE))  # as Ollama takes an MLX model without one
        config = self._add(json.dumps(self._config(manifest)).encode(), media.CONFIG_TYPE)
        table = {"schemaVersion": 2, "mediaType": media.MANIFEST_TYPE, "config": config, "layers": layers}
        path = self.root / "manifests" / manifest.name.path
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(table).encode())
        self._written[manifest.name] = manifest.digest

    def _weights(self, model: ServedModel) -> bytes:
        with tempfile.TemporaryDirectory(prefix="pilotfish-twin-") as folder:
            path = Path(folder) / "twin.gguf"
            write_weights(path, _ends(model.metadata), model.metadata.chat_template if model.metadata else "")
            return path.read_bytes()

    def _config(self, manifest: Manifest) -> dict[str, Any]:
        said: Mapping[str, Any] = {}
        if manifest.config is not None:
            said = json.loads(self._store.read(manifest.config, manifest.name))
        return {"model_format": "gguf", **{key: said[key] for key in _CONFIG if key in said}}

    def _add(self, data: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        path = self.root / "blobs" / f"sha256-{digest}"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _ends(metadata: GGUFMetadata | None) -> tuple[str, str]:
    """The texts of BOS and EOS, which chat templates may write."""
    values = metadata.values if metadata else {}
    tokens = values.get("tokenizer.ggml.tokens")
    texts = list(tokens.strings()) if isinstance(tokens, ArrayRef) else []
    ids = (values.get(f"tokenizer.ggml.{end}_token_id") for end in ("bos", "eos"))
    found = [texts[id].decode("utf-8", "replace") if isinstance(id, int) and id < len(texts) else "" for id in ids]
    return found[0] or "<s>", found[1] or "</s>"


def write_weights(path: Path, ends: tuple[str, str], chat_template: str = "") -> None:
    """A model of one layer that knows bytes, BOS and EOS: enough to be loaded, and to render its chat template."""
    tokens = ["<unk>", *ends, *(f"<0x{byte:02X}>" for byte in range(256))]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_WIDTH)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(_WIDTH)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    if chat_template:
        writer.add_chat_template(chat_template)
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    writer.add_token_types([*kinds, *[gguf.TokenType.BYTE] * 256])
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((_WIDTH, _WIDTH), np.float32))
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.zeros(_WIDTH, np.float32))
    for name in ("token_embd", "output"):
        writer.add_tensor(f"{name}.weight", np.zeros((len(tokens), _WIDTH), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
