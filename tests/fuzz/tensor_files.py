"""Files of MLX models, broken: tensors and their headers, tokenizers and what stands beside them."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import PilotfishError
from pilotfish.manifests import manifest as media
from pilotfish.manifests.audit import audit_model
from pilotfish.manifests.pins import pin_model
from pilotfish.manifests.store import Store
from pilotfish.manifests.tensor_folder import read_folder
from pilotfish.manifests.tensor_import import plan_blobs
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.manifests.tensor_words import read_tensor_words
from pilotfish.plugins._mlx.sizes import ModelSizes
from pilotfish.plugins.drafters._mlx_sizes import sizes_of_layers
from tests.fuzz.mutations import Mutator
from tests.fuzz.reading import Files
from tests.manifests.builders import safetensors_bytes, write_model


class Tensors(Files):
    """A blob's header, as a layer of a store and as a file of a folder: opened, described, mapped, planned."""

    name = "tensors"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._model = folder / "model"
        self._model.mkdir()
        (self._model / "config.json").write_text(json.dumps({"quantization": {"group_size": 64, "bits": 4}}))

    def _header(self) -> dict[str, Any]:
        return {
            "__metadata__": {"quant_type": "int4", "group_size": "64"},
            "x.weight": {"dtype": "U32", "shape": [2, 8], "data_offsets": [0, 64]},
            "x.weight.scale": {"dtype": "BF16", "shape": [2, 1], "data_offsets": [64, 68]},
            "x.weight.bias": {"dtype": "F16", "shape": [2, 1], "data_offsets": [68, 72]},
        }

    def sound(self) -> bytes:
        return _file(json.dumps(self._header()).encode())

    def broken(self, mutator: Mutator) -> bytes:
        return _file(mutator.json(self._header()))

    def read(self, data: bytes) -> None:
        store = Store(self.folder)
        config = (media.JSON, (self._model / "config.json").read_bytes(), "config.json")
        path = write_model(self.folder, "tensors", [(media.TENSOR, data, "x.weight"), config])
        manifest = store.manifest("tensors")
        audit_model(store, manifest)
        with contextlib.suppress(PilotfishError):
            pin_model(store, "tensors", None)
        with contextlib.suppress(PilotfishError):
            layers = TensorLayers.of(manifest, store)
            layers.mlx_names()
            for name in layers.names:
                with contextlib.suppress(PilotfishError):
                    _ = layers.array(name).sum()
                with contextlib.suppress(PilotfishError):
                    layers.quantization_of(name)
        (self._model / "model.safetensors").write_bytes(data)
        with contextlib.suppress(PilotfishError):
            plan_blobs(read_folder(self._model))
        path.unlink()
        for blob in store.blobs.iterdir():
            blob.unlink()


class Tokenizers(Files):
    """A tokenizer.json, and as well a tokenizer_config.json and a config.json with the same bytes: all that is read of
    them without a library."""

    name = "tokenizers"

    def _layout(self) -> dict[str, Any]:
        cut = {"type": "Split", "pattern": {"Regex": r"\s+"}, "behavior": "Isolated", "invert": False}
        return {
            "added_tokens": [{"id": 2, "content": "<s>", "special": True}],
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [cut, {"type": "ByteLevel", "use_regex": False}]},
            "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}]},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]], "ignore_merges": True},
            "bos_token": {"content": "<s>"},
            "add_bos_token": True,
            "eos_token_id": 2,
            "vocab_size": 4,
            "text_config": {"vocab_size": 4, "max_position_embeddings": 512},
            "chat_template": [{"name": "rag"}, {"name": "default", "template": "x"}],
        }

    def sound(self) -> bytes:
        return json.dumps(self._layout()).encode()

    def broken(self, mutator: Mutator) -> bytes:
        return mutator.json(self._layout())

    def read(self, data: bytes) -> None:
        names = ("tokenizer.json", "tokenizer_config.json", "config.json")
        layers = [(media.TENSOR, safetensors_bytes("x"), "x"), *((media.JSON, data, name) for name in names)]
        path, store = write_model(self.folder, "tokens", layers), Store(self.folder)
        manifest = store.manifest("tokens")
        with contextlib.suppress(PilotfishError):
            pin_model(store, "tokens", None)
        with contextlib.suppress(PilotfishError):
            read_tensor_words(manifest, store)
        for sizes in (ModelSizes.of, lambda tensors: sizes_of_layers(tensors, 4)):
            with contextlib.suppress(PilotfishError):
                sizes(TensorLayers.of(manifest, store))
        path.unlink()
        for blob in store.blobs.iterdir():
            blob.unlink()


def _file(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + bytes(72)
