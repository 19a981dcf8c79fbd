"""The header of a GGUF file, walked with every length checked against the file before it is believed.

The `gguf` package's reader trusts the lengths in a file and makes a Python object of every vocabulary entry: 2 s and
100 MB for a vocabulary of 49,152 on a small machine. This walk takes tens of milliseconds, leaves arrays where they
are until asked for, and names the key or the offset at which a file stops making sense. Numbers of value types,
tensor types and their block sizes come from the package.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.file_window import FileWindow
from pilotfish.manifests.gguf_numbers import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from pilotfish.manifests.remembered import Stamp, is_settled, stamp_of

MAGIC = b"GGUF"
VERSIONS = (2, 3)  # version 1 had 32-bit lengths and is not read by anything current
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 17
MAX_KEY_BYTES = 1 << 16
MAX_DIMENSIONS = 4
KEPT_HEADERS = 4  # of the files looked at last: a model's, its draft's, its projector's
MAX_TEXT_BYTES = 32 << 20  # all string values of one header together; the longest chat template known has 0.1 MB

SCALARS = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}


@dataclass(frozen=True, slots=True)
class ArrayRef:
    """An array that was left in the file: `count` elements of `element` in the bytes [`start`, `end`)."""

    path: Path
    element: GGUFValueType
    count: int
    start: int
    end: int

    def raw(self) -> bytes:
        """The array's bytes in the file: little-endian numbers, or strings each led by a uint64 length.

        Raises BrokenModel when the file is gone or was cut short after its header was read.
        """
        try:
            with self.path.open("rb") as file:
                return FileWindow(file).read(self.start, self.end - self.start)
        except (OSError, ValueError) as error:
            raise BrokenModel(f"{self.path} has changed while it was read: {error}; pull the model again") from error

    def numbers(self) -> tuple[int | float, ...]:
        """The elements of an array of numbers. Raises ValueError for strings."""
        if self.element not in SCALARS:
            raise ValueError(f"an array of {self.element.name} holds no numbers")
        return struct.unpack(f"<{self.count}{SCALARS[self.element]}", self.raw())

    def strings(self) -> list[bytes]:
        """The elements of an array of strings, as bytes. Raises ValueError for numbers, BrokenModel as `raw` does."""
        if self.element is not GGUFValueType.STRING:
            raise ValueError(f"an array of {self.element.name} holds no strings")
        data, offset, found = self.raw(), 0, []
        for _ in range(self.count):
            length = int.from_bytes(data[offset : offset + 8], "little")
            found.append(data[offset + 8 : offset + 8 + length])
            offset += 8 + length
        if offset != len(data):
            raise BrokenModel(f"{self.path} has changed while it was read; pull the model again")
        return found


Value = int | float | bool | str | ArrayRef


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor. `type` is `Q4_K` and the like, or `type 99` when it is newer than the `gguf` package; `shape` has the
    fastest dimension first; `offset` is where its data starts in the data section (bytes)."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int

    @property
    def elements(self) -> int:
        count = 1
        for length in self.shape:
            count *= length
        return count

    @property
    def size(self) -> int:
        """Bytes of its data as stored; 0 when its type is unknown here."""
        if self.type.startswith("type "):
            return 0
        block: int
        width: int
        block, width = GGML_QUANT_SIZES[GGMLQuantizationType[self.type]]
        return self.elements // block * width


@dataclass(frozen=True, slots=True)
class Header:
    """Everything before the tensor data. Offsets are in bytes from the file's beginning."""

    path: Path
    size: int  # bytes of the whole file
    version: int
    values: Mapping[str, Value]
    tensors: tuple[TensorInfo, ...]
    tensors_at: int  # the offset of what is said of the first tensor
    data_at: int  # the offset of the tensors' data


def read_header(path: Path, model: str = "") -> Header:
    """A GGUF file's header. Raises BrokenModel naming the file, `model` if given, and the key or offset.

    One that was walked in this process is not walked again while its file stays as it is: a load asks six times.
    """
    where = f"{path} of {model}" if model else str(path)
    try:
        stamp = stamp_of(path)
        if (walked := _walked.get(path)) and walked[0] == stamp:
            return walked[1]
        header = _walk(path, where)
        if is_settled(stamp) and stamp_of(path) == stamp:
            _keep(path, stamp, header)
        return header
    except (OSError, ValueError) as error:
        raise BrokenModel(f"{where} cannot be read: {error}") from error


def _keep(path: Path, stamp: Stamp, header: Header) -> None:
    _walked[path] = stamp, header
    for oldest in list(_walked)[:-KEPT_HEADERS]:
        _walked.pop(oldest, None)


def _walk(path: Path, where: str) -> Header:
    with path.open("rb") as file:
        view = FileWindow(file)
        if not view.size:
            raise BrokenModel(f"{where} is empty; pull the model again")
        return _HeaderWalk(path, where, view).header()


_walked: dict[Path, tuple[Stamp, Header]] = {}


class _HeaderWalk:
    """One pass over a header. `at` is the offset, `what` the thing being read, for messages."""

    def __init__(self, path: Path, where: str, view: FileWindow) -> None:
        self.path = path
        self.where = where
        self.view = view
        self.size = view.size
        self.at = 0
        self.what = "header"
        self.text_budget = MAX_TEXT_BYTES

    def header(self) -> Header:
        version = self._version()
        n_tensors, n_keys = self._count("tensor count", MAX_TENSORS, 24), self._count("key count", MAX_KEYS, 13)
        values, tensors_at = self._values(n_keys), self.at
        tensors = tuple(self._tensor(index) for index in range(n_tensors))
        data_at = self._data_offset(values)
        self._check_tensors(tensors, data_at)
        return Header(self.path, self.size, version, values, tensors, tensors_at, data_at)

    def broken(self, problem: str) -> BrokenModel:
        return BrokenModel(f"{self.where} is broken at byte {self.at}: {self.what}: {problem}; pull the model again")

    def _version(self) -> int:
        magic = self.view.read(0, min(self.size, len(MAGIC)))
        if magic != MAGIC:
            raise BrokenModel(f"{self.where} is not a GGUF file: it begins with {magic!r}; pull the model again")
        self.at, self.what = 4, "version"
        version = self._number("I")
        if version not in VERSIONS:
            kind = " (a big-endian file)" if version & 0xFFFF == 0 and version else ""
            raise self.broken(f"0x{version:08x} is not supported{kind}; expected 2 or 3, little-endian")
        return version

    def _count(self, what: str, limit: int, least: int) -> int:
        """A count of things that take at least `least` bytes each."""
        self.what = what
        count = self._number("Q")
        if count > limit or count * least > self.size - self.at:
            raise self.broken(f"{count} cannot be right for a file of {self.size} bytes")
        return count

    def _values(self, n_keys: int) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for index in range(n_keys):
            self.what = f"key {index}"
            key = self._name(MAX_KEY_BYTES)
            if key in values:
                raise self.broken(f"{key} appears twice")
            self.what = f"key {key}"
            values[key] = self._value(self._value_type())
        return values

    def _value_type(self) -> GGUFValueType:
        number = self._number("I")
        try:
            return GGUFValueType(number)
        except ValueError:
            raise self.broken(f"unknown value type {number}") from None

    def _value(self, kind: GGUFValueType) -> Value:
        if kind is GGUFValueType.STRING:
            return self._text()
        if kind is GGUFValueType.ARRAY:
            return self._array()
        if kind is GGUFValueType.BOOL:
            return bool(self._number("B"))
        (value,) = self._unpack(SCALARS[kind])
        return value

    def _text(self) -> str:
        start, end = self._span()
        self.text_budget -= end - start
        if self.text_budget < 0:
            raise self.broken(f"a string of {end - start} bytes is too long for metadata")
        return self.view.read(start, end - start).decode("utf-8", "replace")

    def _array(self) -> ArrayRef:
        kind = self._value_type()
        count = self._number("Q")
        start = self.at
        if kind is GGUFValueType.STRING:
            self._skip_strings(count)
        elif kind in SCALARS:
            self._skip(count * struct.calcsize("<" + SCALARS[kind]), f"an array of {count} {kind.name}")
        else:
            raise self.broken("an array of arrays is not supported")
        return ArrayRef(self.path, kind, count, start, self.at)

    def _skip_strings(self, count: int) -> None:
        try:
            self.at = self.view.after_strings(self.at, count)
        except ValueError as error:
            raise self.broken(str(error)) from None

    def _tensor(self, index: int) -> TensorInfo:
        self.what = f"tensor {index}"
        name = self._name(MAX_KEY_BYTES)
        self.what = f"tensor {name}"
        n_dimensions = self._number("I")
        if n_dimensions > MAX_DIMENSIONS:
            raise self.broken(f"{n_dimensions} dimensions, at most {MAX_DIMENSIONS} are possible")
        shape = tuple(int(length) for length in self._unpack(f"{n_dimensions}Q"))
        number, offset = self._number("I"), self._number("Q")
        return TensorInfo(name, _type_name(number), shape, offset)

    def _data_offset(self, values: Mapping[str, Value]) -> int:
        self.what = "key general.alignment"
        alignment = values.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self.broken(f"{alignment!r} is not a power of two")
        return (self.at + alignment - 1) // alignment * alignment

    def _check_tensors(self, tensors: tuple[TensorInfo, ...], data_offset: int) -> None:
        names: set[str] = set()
        for tensor in tensors:
            self.what = f"tensor {tensor.name}"
            if tensor.name in names:
                raise self.broken("appears twice")
            names.add(tensor.name)
            end = data_offset + tensor.offset + tensor.size
            if end > self.size:
                raise self.broken(f"its data would end at byte {end} of a file of {self.size} bytes")

    def _name(self, limit: int) -> str:
        start, end = self._span()
        if end - start > limit:
            raise self.broken(f"a name of {end - start} bytes, at most {limit} are possible")
        try:
            return self.view.read(start, end - start).decode("utf-8")
        except UnicodeDecodeError:
            raise self.broken("a name that is not UTF-8") from None

    def _span(self) -> tuple[int, int]:
        """Skip a string; where its bytes start and end."""
        length = self._number("Q")
        start = self.at
        self._skip(length, f"a string of {length} bytes")
        return start, self.at

    def _skip(self, length: int, what: str) -> None:
        if length > self.size - self.at:
            raise self.broken(f"{what} does not fit in the file")
        self.at += length

    def _number(self, code: str) -> int:
        return int(self._unpack(code)[0])

    def _unpack(self, codes: str) -> tuple[int | float, ...]:
        length = struct.calcsize("<" + codes)
        if length > self.size - self.at:
            raise self.broken("the file ends here")
        found = self.view.unpack(codes, self.at)
        self.at += length
        return found


def _type_name(number: int) -> str:
    try:
        name: str = GGMLQuantizationType(number).name
    except ValueError:
        return f"type {number}"
    return name
