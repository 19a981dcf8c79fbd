"""What a GGUF file says about the model in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pilotfish.manifests.gguf_header import ArrayRef, Header, TensorInfo, Value, read_header
from pilotfish.manifests.gguf_numbers import LlamaFileType

# Architectures that llama.cpp only runs as encoders, pooling type or not.
ENCODERS = frozenset(
    {
        "bert",
        "eurobert",
        "gemma-embedding",
        "jina-bert-v2",
        "jina-bert-v3",
        "modern-bert",
        "neo-bert",
        "nomic-bert",
        "nomic-bert-moe",
        "t5encoder",
    }
)
VISION_PREFIXES = ("v.", "mm.", "a.", "s.")  # vision, projector, audio and speech tensors inside a model file
DRAFT_MARKS = (".nextn.", "mtp.")  # multi-token-prediction heads, by llama.cpp's and by Ollama's naming


@dataclass(frozen=True, slots=True)
class GGUFMetadata:
    """A GGUF file's metadata. Empty strings, zeros and None where the file says nothing.

    `values` holds every key as it stands in the file; arrays in it are `ArrayRef`s, read when asked.
    `matrix_types` counts the tensors of two dimensions and more by type: their products decide which forward shapes are
    bit-identical.
    """

    path: Path
    size: int  # bytes
    architecture: str
    kind: str  # general.type: model, adapter, mmproj, ...
    name: str
    quantization: str  # as Ollama shows it: Q4_1, Q4_K_M, F16, unknown
    context_length: int  # tokens the model was trained for
    block_count: int
    embedding_length: int
    parameter_count: int
    chat_template: str
    pooling_type: int | None
    split_index: int
    matrix_types: Mapping[str, int]
    draft_tensors: tuple[str, ...]
    vision_tensors: int
    values: Mapping[str, Value]

    @property
    def is_embedding(self) -> bool:
        """Whether the model embeds texts and does not continue them."""
        return self.pooling_type is not None or self.architecture in ENCODERS

    @property
    def is_recurrent(self) -> bool:
        """Whether part of its memory is a running state, which cannot be cut back token by token."""
        return any(key.startswith((f"{self.architecture}.ssm.", f"{self.architecture}.wkv.")) for key in self.values)

    @property
    def sliding_window(self) -> int:
        """Tokens that some of its layers look back; 0 when all of them see the whole context."""
        return _whole(self.values, f"{self.architecture}.attention.sliding_window")

    def text(self, key: str, default: str = "") -> str:
        """A string value; `default` where it is absent or of another type."""
        value = self.values.get(key)
        return value if isinstance(value, str) else default

    def number(self, key: str, default: int = 0) -> int:
        """An integer value; `default` where it is absent or of another type."""
        return _whole(self.values, key, default)

    def array(self, key: str) -> ArrayRef | None:
        """An array value, still in the file; None where it is absent or no array."""
        value = self.values.get(key)
        return value if isinstance(value, ArrayRef) else None


def read_metadata(path: Path, model: str = "") -> GGUFMetadata:
    """Read a GGUF file's metadata. Raises BrokenModel naming the file, `model` if given, and the key or offset."""
    return describe(read_header(path, model))


def describe(header: Header) -> GGUFMetadata:
    """The metadata in a header that has been read."""
    values = header.values
    architecture = _text(values, "general.architecture")
    return GGUFMetadata(
        path=header.path,
        size=header.size,
        architecture=architecture,
        kind=_text(values, "general.type"),
        name=_text(values, "general.name"),
        quantization=_quantization(values),
        context_length=_whole(values, f"{architecture}.context_length"),
        block_count=_whole(values, f"{architecture}.block_count"),
        embedding_length=_whole(values, f"{architecture}.embedding_length"),
        parameter_count=sum(tensor.elements for tensor in header.tensors),
        chat_template=_text(values, "tokenizer.chat_template"),
        pooling_type=_optional(values, f"{architecture}.pooling_type"),
        split_index=_whole(values, "split.no"),
        matrix_types=Counter(tensor.type for tensor in header.tensors if len(tensor.shape) > 1),
        draft_tensors=tuple(tensor.name for tensor in header.tensors if _is_draft(tensor)),
        vision_tensors=sum(tensor.name.startswith(VISION_PREFIXES) for tensor in header.tensors),
        values=values,
    )


def _is_draft(tensor: TensorInfo) -> bool:
    return DRAFT_MARKS[0] in f".{tensor.name}" or tensor.name.startswith(DRAFT_MARKS[1])


def _quantization(values: Mapping[str, Value]) -> str:
    number = _optional(values, "general.file_type")
    try:
        return LlamaFileType(number).name.partition("_")[2] or "unknown"  # MOSTLY_Q4_K_M, ALL_F32, GUESSED
    except ValueError:
        return "unknown"


def _text(values: Mapping[str, Value], key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else ""


def _optional(values: Mapping[str, Value], key: str) -> int | None:
    value = values.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _whole(values: Mapping[str, Value], key: str, default: int = 0) -> int:
    value = _optional(values, key)
    return default if value is None else value
