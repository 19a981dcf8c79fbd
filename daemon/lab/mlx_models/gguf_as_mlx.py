"""A GGUF written as an MLX model: its weights in float16 or quantized anew, its vocabulary as a tokenizer.json.

For llama a GGUF holds the rows of keys and queries in another order than Hugging Face does, so that neighbours are
turned together instead of halves. They are put back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from pilotfish.daemon.lab.mlx_models.gguf_tokenizer import tokenizer_config, tokenizer_json
from pilotfish.daemon.lab.mlx_models.weight_layers import Array, weight_layers
from pilotfish.daemon.lab.tiny_models.vocabulary import VocabularyKeys, read_vocabulary
from pilotfish.hooks.errors import EngineError
from pilotfish.manifests.gguf_header import read_header
from pilotfish.manifests.manifest import Layer, Manifest
from pilotfish.manifests.mlx_names import mlx_name
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.quantization import Quantization
from pilotfish.manifests.store import Store
from pilotfish.manifests.tensor_writer import add_json, write_tensor_model

CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_TURNED = {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}  # llama's, and how many heads


def add_gguf_as_mlx(store: Store, name: str, path: Path, quantization: Quantization | None = None) -> Manifest:
    """Write the model in a GGUF into a store as an MLX model. Needs MLX only where it is quantized.

    Raises EngineError for an architecture or a vocabulary that cannot be written so, and BrokenModel.
    """
    values = read_header(path).values
    architecture = str(values.get("general.architecture"))
    if architecture not in CLASSES or f"{architecture}.rope.scaling.type" in values:
        raise EngineError(f"{path}: only {', '.join(CLASSES)} without scaled positions can be written as MLX models")
    keys = {key.removeprefix(f"{architecture}."): value for key, value in values.items()}
    vocabulary = read_vocabulary(path)
    layers = weight_layers(store.root, _weights(path, architecture, keys), quantization)
    tied = all(layer.name != "lm_head.weight" for layer in layers)
    config = _config(architecture, keys, vocabulary, tied)
    layers += json_layers(store.root, config, vocabulary)
    kind = quantization.ollama_type if quantization else ""
    write_tensor_model(store.root, ModelName.parse(name), layers, family=architecture, file_type=kind)
    return store.manifest(name)


def json_layers(root: Path, config: Mapping[str, Any], vocabulary: VocabularyKeys, folder: str = "") -> list[Layer]:
    """The JSON layers of a model: its config, and those of its vocabulary. `folder`: a draft's."""
    ids = {key: config[key] for key in ("bos_token_id", "eos_token_id") if key in config}
    files = {
        "config.json": config,
        "generation_config.json": ids,
        "tokenizer.json": tokenizer_json(vocabulary),
        "tokenizer_config.json": tokenizer_config(vocabulary),
    }
    return [add_json(root, folder + name, table) for name, table in files.items()]


def _config(architecture: str, keys: Mapping[str, Any], vocabulary: VocabularyKeys, tied: bool) -> dict[str, Any]:
    heads = keys["attention.head_count"]
    return {
        "architectures": [CLASSES[architecture]],
        "model_type": architecture,
        "hidden_act": "silu",
        "hidden_size": keys["embedding_length"],
        "num_hidden_layers": keys["block_count"],
        "intermediate_size": keys["feed_forward_length"],
        "num_attention_heads": heads,
        "num_key_value_heads": keys.get("attention.head_count_kv", heads),
        "head_dim": keys.get("attention.key_length", keys["embedding_length"] // heads),
        "rms_norm_eps": keys["attention.layer_norm_rms_epsilon"],
        "vocab_size": vocabulary.size,
        "rope_theta": keys.get("rope.freq_base", 10000.0),
        "max_position_embeddings": keys["context_length"],
        "tie_word_embeddings": tied,
        "torch_dtype": "float16",
        "bos_token_id": vocabulary.values.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": vocabulary.values.get("tokenizer.ggml.eos_token_id"),
    }


def _weights(path: Path, architecture: str, keys: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    """Every tensor by its name in an MLX model, in order of these names, in float32."""
    tensors = {mlx_name(tensor.name): tensor for tensor in gguf.GGUFReader(path).tensors}
    if "" in tensors:
        raise EngineError(f"{path}: the tensor {tensors[''].name} has no place in an MLX model")
    for name, tensor in sorted(tensors.items()):
        array: Array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        part = tensor.name.split(".")[-2]
        if architecture == "llama" and part in _TURNED:
            array = _halves(array, keys.get(_TURNED[part], keys["attention.head_count"]))
        yield name, array.astype(np.float32)


def _halves(array: Array, heads: int) -> Array:
    """Rows of which neighbours are turned together, so that a head's halves are: `(heads * size, columns)`."""
    size = array.shape[0] // heads
    return array.reshape(heads, size // 2, 2, -1).swapaxes(1, 2).reshape(array.shape)
