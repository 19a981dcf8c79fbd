"""Writing a tiny model: random weights of the declared shapes, whose spread keeps a deep stack from going silent."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from pilotfish.daemon.config.paths import cache_dir
from pilotfish.daemon.lab.subjects import variant
from pilotfish.daemon.lab.tiny_models.architecture import EMBD, VOCAB, Architecture, Shape, Value
from pilotfish.daemon.lab.tiny_models.vocabulary import VocabularyKeys, vocabulary_of

FORMATS = ("Q4_K_M", "Q4_0", "Q8_0")
_GAIN = 2.0  # of a matrix: a row's product with numbers spread by 1 is spread by this much
_LOGITS = 4.0  # how far logits are apart: about as much as a trained model's
_LAST_NORMS = ("OUTPUT_NORM", "TOKEN_EMBD_NORM")

Array = npt.NDArray[np.float32]


def tiny_model(architecture: Architecture, kind: str, seed: int = 0) -> Path:
    """The tiny model in a number format (`F32`, or what libllama quantizes to), made once in the cache folder.

    Raises ModelNotFound without the package that has its vocabulary, and EngineError without libllama.
    """
    name = architecture.name.replace(" ", "-").replace("(", "").replace(")", "")
    path = cache_dir() / "tiny-models" / f"{name}-{_digest(architecture, seed)}.gguf"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        write(architecture, partial, seed)
        partial.replace(path)
    return path if kind == "F32" else variant(path, kind)


def _digest(architecture: Architecture, seed: int) -> str:
    """Changes with what is declared, so that a model of an older declaration is not taken for it."""
    about_people = replace(architecture, library="", note="")
    return f"{zlib.crc32(repr((about_people, seed)).encode()):08x}"


def write(architecture: Architecture, path: Path, seed: int = 0) -> None:
    """Write the model to `path` in F32."""
    vocabulary = vocabulary_of(architecture.words).first(architecture.entries)
    writer = gguf.GGUFWriter(path, architecture.id)
    writer.add_name("tiny model")  # libllama reads some names as a kind of vocabulary
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for key, value in {"block_count": len(architecture.layers), **architecture.keys}.items():
        add_key(writer, f"{architecture.id}.{key}", value)
    _without_template(vocabulary).add_to(writer)
    for name, values in _tensors(architecture, vocabulary.size, np.random.default_rng(seed)):
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _without_template(vocabulary: VocabularyKeys) -> VocabularyKeys:
    """A template would be another model's."""
    values = {key: value for key, value in vocabulary.values.items() if "chat_template" not in key}
    return VocabularyKeys(values, vocabulary.size)


def add_key(writer: gguf.GGUFWriter, key: str, value: Value) -> None:
    """Write a key as the type of its value says."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    else:
        writer.add_array(key, list(value))


def _tensors(architecture: Architecture, n_vocab: int, random: np.random.Generator) -> Iterator[tuple[str, Array]]:
    """Every tensor, by its name in the file."""
    for name, shape in architecture.whole.items():
        yield tensor_name(name), _weights(architecture, name, _sized(shape, n_vocab), random)
    for i, layer in enumerate(architecture.layers):
        for name, shape in layer.items():
            yield tensor_name(name, i), _weights(architecture, name, shape, random)


def tensor_name(name: str, layer: int = 0) -> str:
    """The name in a file of a tensor as it is declared. Raises KeyError for one that `gguf` does not know."""
    member, dot, suffix = name.partition(".")
    ending = suffix if dot else "weight"
    known: str = gguf.TENSOR_NAMES[gguf.MODEL_TENSOR[member]]
    return known.format(bid=layer) + (f".{ending}" if ending else "")


def _sized(shape: Shape, n_vocab: int) -> Shape:
    return tuple(n_vocab if length == VOCAB else length for length in shape)


def _weights(architecture: Architecture, name: str, shape: Shape, random: np.random.Generator) -> Array:
    noise: Array = random.standard_normal(shape, dtype=np.float32)
    if name in _LAST_NORMS and architecture.ties_output:
        return (1 + 0.1 * noise) * np.float32(_LOGITS / (EMBD**0.5 * architecture.embedding))
    if "NORM" in name or name in ("ROPE_FREQS", "LAYER_OUT_SCALE", "ALTUP_CORRECT_SCALE"):
        return 0.1 * noise + (not name.endswith(".bias"))
    if name == "SSM_A.":
        return -abs(1 + 0.3 * noise)  # a state that fades
    if name == "TOKEN_EMBD":
        return np.float32(architecture.embedding) * noise
    if name == "OUTPUT":
        return np.float32(_LOGITS / EMBD**0.5) * noise
    if len(shape) == 1 or name.endswith(".bias"):
        return 0.3 * noise
    return np.float32(_GAIN / shape[-1] ** 0.5) * noise
