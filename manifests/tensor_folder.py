"""A model's folder as Hugging Face and mlx-lm lay it out: safetensors files, an index of them, JSON files beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import BrokenModel, ModelNotFound
from pilotfish.manifests.manifest import json_object
from pilotfish.manifests.safetensors import TensorPlace, places, read_header

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
OTHER_FILES = ("tokenizer.model", "chat_template.jinja")  # kept by their names, too, though they are no JSON
_CHUNK = 4 << 20  # bytes read at a time
_OTHERS = {".bin": "PyTorch's own files", ".gguf": "a GGUF, which needs no import: ollama create", ".npz": "npz files"}


@dataclass(frozen=True, slots=True)
class FolderTensor:
    """A tensor in one of a folder's files; `alone`: there is no other one in that."""

    path: Path
    place: TensorPlace
    alone: bool

    def chunks(self) -> Iterator[bytes]:
        """Its bytes. A file that got shorter meanwhile gives fewer. Raises OSError."""
        with self.path.open("rb") as file:
            file.seek(self.place.start)
            left = self.place.size
            while left and (data := file.read(min(left, _CHUNK))):
                left -= len(data)
                yield data


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """What is in a folder: tensors by name in order of their names, `config.json`, and the other files to keep."""

    path: Path
    tensors: Mapping[str, FolderTensor]
    config: Mapping[str, Any]
    files: tuple[Path, ...]  # config.json among them

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.place.size for tensor in self.tensors.values())

    @property
    def architecture(self) -> str:
        """The name of the model's class, or its type where the config has no class."""
        classes = self.config.get("architectures")
        named = classes[0] if isinstance(classes, list) and classes else self.config.get("model_type")
        return named if isinstance(named, str) else ""


def read_folder(path: Path) -> ModelFolder:
    """Look into a folder; no weights are read. Raises ModelNotFound where no such model is, and BrokenModel for one
    that is incomplete or ambiguous, naming the file and the tensor."""
    if not (path / CONFIG).is_file():
        raise ModelNotFound(f"{path} holds no {CONFIG}; name a folder in Hugging Face's or mlx-lm's layout")
    index = _index(path / INDEX)
    tensors: dict[str, FolderTensor] = {}
    for name, tensor in _tensors(_weight_files(path, index)):
        if index and name not in index:
            continue  # Ollama keeps to the index, too
        if name in tensors:
            raise BrokenModel(f"{path}: tensor {name} is in {tensors[name].path.name} and in {tensor.path.name}")
        tensors[name] = tensor
    for name, file in index.items():
        if name not in tensors or tensors[name].path.name != file:
            raise BrokenModel(f"{path}: {INDEX} has tensor {name} in {file}, where it is not; fetch the model again")
    files = [file for file in path.glob("*.json") if file.name != INDEX and file.is_file()]
    files += [path / name for name in OTHER_FILES if (path / name).is_file()]
    return ModelFolder(path, dict(sorted(tensors.items())), _object(path / CONFIG), tuple(sorted(files)))


def _index(path: Path) -> dict[str, str]:
    """Which file each tensor is in; empty without an index."""
    if not path.is_file():
        return {}
    table = _object(path).get("weight_map")
    if not isinstance(table, dict) or not all(_is_file_name(value) for value in table.values()):
        raise BrokenModel(f"{path} has no usable weight_map; fetch the model again")
    return table


def _is_file_name(value: object) -> bool:
    return isinstance(value, str) and value.endswith(".safetensors") and Path(value).name == value


def _weight_files(path: Path, index: Mapping[str, str]) -> list[Path]:
    if index:
        return [path / name for name in sorted(set(index.values()))]
    found = sorted(path.glob("model*.safetensors"))  # others repeat them: Mistral's consolidated.safetensors
    if not found:
        others = {_OTHERS[file.suffix] for file in path.iterdir() if file.suffix in _OTHERS}
        what = f"; it has {', '.join(sorted(others))}" if others else ""
        raise ModelNotFound(f"{path} holds no model*.safetensors{what}; convert the model with mlx_lm.convert")
    if len(found) > 1 and path / "model.safetensors" in found:
        raise BrokenModel(f"{path} holds model.safetensors and others, and no {INDEX}; remove what does not belong")
    return found


def _tensors(files: list[Path]) -> Iterator[tuple[str, FolderTensor]]:
    for file in files:
        header = read_header(file)
        for place in places(header, str(file)):
            yield place.name, FolderTensor(file, place, len(header.tensors) == 1)


def _object(path: Path) -> dict[str, Any]:
    return json_object(path.read_bytes(), str(path), "fetch the model again")
