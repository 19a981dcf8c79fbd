"""Files that are read, broken: each reader raises what it promises, or nothing at all, within five seconds of the
processor."""

from __future__ import annotations

import contextlib
import json
import struct
from array import array
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gguf import GGUFValueType

from pilotfish.daemon.certify.certificate import Certificate, CertificateStore, Identity, _checksum
from pilotfish.daemon.config import files
from pilotfish.daemon.config.reader import parse, to_table
from pilotfish.hooks.errors import PilotfishError
from pilotfish.hooks.types import EngineSetting, Lane
from pilotfish.manifests import manifest as media
from pilotfish.manifests.audit import audit_model
from pilotfish.manifests.gguf import read_metadata
from pilotfish.manifests.gguf_header import ArrayRef
from pilotfish.manifests.pins import pin_file, pin_model
from pilotfish.manifests.store import Store
from pilotfish.plugins.drafters._gguf_shape import read_shape
from pilotfish.plugins.drafters._memory.config import MemoryConfig
from pilotfish.plugins.drafters._memory.files import MemoryFiles, MemoryOwner
from pilotfish.plugins.drafters._memory.records import Passage, pack
from pilotfish.plugins.drafters._remote.pieces import read_pieces
from tests.fakes.measured import certificate_of
from tests.fuzz.mutations import Mutator
from tests.fuzz.reading import Files
from tests.fuzz.tensor_files import Tensors, Tokenizers
from tests.manifests.builders import safetensors_bytes, text, write_model


class Gguf(Files):
    """Headers, by every reader that there is, and the arrays behind them."""

    name = "gguf"

    def sound(self) -> bytes:
        return b"".join(_gguf_parts())

    def broken(self, mutator: Mutator) -> bytes:
        return mutator.fields(_gguf_parts())

    def read(self, data: bytes) -> None:
        path = self.folder / "model.gguf"
        path.write_bytes(data)
        with contextlib.suppress(PilotfishError):
            for value in read_metadata(path).values.values():
                if isinstance(value, ArrayRef):
                    _ = value.strings() if value.element is GGUFValueType.STRING else value.numbers()
        with contextlib.suppress(PilotfishError):
            pin_file(path)
        with contextlib.suppress(PilotfishError):
            shape = read_shape(path)
            shape.cache_elements(512)
        with contextlib.suppress(PilotfishError):
            read_pieces(path)


class Manifests(Files):
    """A store whose manifest, config and text layers are broken: listing, auditing, pinning."""

    name = "manifests"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._store = Store(folder)
        layers = [
            (media.MODEL, Gguf(folder).sound()),
            (media.TEMPLATE, b"{{ .Prompt }}"),
            (media.PARAMS, json.dumps({"stop": ["##"], "num_ctx": 512}).encode()),
            (media.MESSAGES, json.dumps([{"role": "user", "content": "Hi"}]).encode()),
            (media.TENSOR, safetensors_bytes("model.embed", "mtp.fc"), "model.embed"),
        ]
        about = {
            "model_format": "gguf",
            "model_families": ["llama"],
            "draft": {"model_format": "gguf"},
            "capabilities": [],
        }
        self._path = write_model(folder, "broken", layers, about)
        self._manifest = json.loads(self._path.read_bytes())

    def sound(self) -> bytes:
        return json.dumps(self._manifest).encode()

    def broken(self, mutator: Mutator) -> bytes:
        return mutator.json(self._manifest)

    def read(self, data: bytes) -> None:
        self._path.write_bytes(data)
        for manifest in self._store.models().models:
            for look in (self._store.config, self._store.params, self._template, self._audit, self._pin):
                with contextlib.suppress(PilotfishError):
                    look(manifest)

    def _template(self, manifest: media.Manifest) -> None:
        self._store.text(manifest, media.TEMPLATE)

    def _audit(self, manifest: media.Manifest) -> None:
        _ = audit_model(self._store, manifest).obstacles

    def _pin(self, manifest: media.Manifest) -> None:
        pin_model(self._store, manifest.name, None)


class Blobs(Files):
    """The config blob and the texts that a sound manifest names."""

    name = "config blobs"
    about: Mapping[str, Any] = {
        "model_format": "gguf", "model_families": ["llama"], "file_type": "Q4_0", "context_length": 8192,
        "draft": {"model_format": "gguf", "tensor_prefix": "mtp."}, "capabilities": ["completion"],
        "num_nextn_predict_layers": 1, "stop": ["##"], "temperature": 0.5,
    }  # fmt: skip

    def sound(self) -> bytes:
        return json.dumps(self.about).encode()

    def broken(self, mutator: Mutator) -> bytes:
        return mutator.json(self.about)

    def read(self, data: bytes) -> None:
        with contextlib.suppress(PilotfishError):
            media.parse_config(data, "here")
        path = write_model(self.folder, "blobs", [(media.PARAMS, data), (media.JSON, data, "config.json")])
        store = Store(self.folder)
        manifest = store.manifest("blobs")
        for look in (store.params, lambda manifest: audit_model(store, manifest)):
            with contextlib.suppress(PilotfishError):
                look(manifest)
        path.unlink()
        for blob in store.blobs.iterdir():
            blob.unlink()


class Certificates(Files):
    """Certificates whose checksum fits: nothing is raised, whatever lies in the folder."""

    name = "certificates"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._store = CertificateStore(folder)
        self._identity = Identity(
            ("sha256:ab",), (("llama", "build"),), "cpu", 2, None, None, "f16", True, (("GGML_X", "1"),)
        )
        put = self._store.put(_certificate(self._identity))
        assert put is not None
        self._path = put
        self._table = json.loads(put.read_bytes())

    def sound(self) -> bytes:
        return json.dumps(self._table).encode()

    def broken(self, mutator: Mutator) -> bytes:
        return mutator.json(self._table)

    def read(self, data: bytes) -> None:
        with contextlib.suppress(ValueError, RecursionError, TypeError):
            table = {name: value for name, value in dict(json.loads(data)).items() if name != "checksum"}
            data = json.dumps({**table, "checksum": _checksum(table)}).encode()
        self._path.write_bytes(data)
        found = self._store.find(self._identity)
        for certificate in (found, *(entry.certificate for entry in self._store.entries())):
            if certificate:
                certificate.summary()
        list(self._store.of_weights(self._identity.weights))


class Memory(Files):
    """A model's memory on disk: read, appended to, read again."""

    name = "memory"

    def sound(self) -> bytes:
        return b"".join(pack(passage) for passage in _passages())

    def broken(self, mutator: Mutator) -> bytes:
        records = [pack(passage) for passage in _passages()]
        parts = [
            part for record in records for part in (record[:4], record[4:8], record[8:16], record[16:20], record[20:])
        ]
        return mutator.fields(parts)

    def read(self, data: bytes) -> None:
        who = MemoryOwner("tiny:1m", ("sha256:ab",), "tokenizer")
        files = MemoryFiles(MemoryConfig("disk", folder=self.folder), who)
        files.folder.mkdir(parents=True, exist_ok=True)
        for path in files.folder.iterdir():
            path.unlink()
        (files.folder / f"{1:020d}-00.seg").write_bytes(data)
        files.read()
        latest = Passage(5e9, array("i", [7] * 5))
        files.append(latest)
        if latest not in files.read():
            raise AssertionError("what was appended is not there")


class Configs(Files):
    """Config files."""

    name = "configs"

    def sound(self) -> bytes:
        return (Path(__file__).resolve().parents[2] / "etc" / "pilotfish.toml").read_bytes() + _TOML

    def broken(self, mutator: Mutator) -> bytes:
        lines = self.sound().splitlines(keepends=True)
        said = [line for line in lines if line.strip() and not line.startswith(b"#")]
        at = mutator.random.randrange(len(said))
        key, sign, _ = said[at].partition(b" = ")
        if sign and mutator.random.random() < 0.7:
            said[at] = key + sign + mutator.random.choice(_TOML_VALUES) + b"\n"
        return b"".join(said) if sign and mutator.random.random() < 0.7 else mutator.raw(b"".join(said))

    def read(self, data: bytes) -> None:
        path = self.folder / "pilotfish.toml"
        path.write_bytes(data)
        with contextlib.suppress(PilotfishError):
            read = files.load_written(path)
            parse(json.loads(json.dumps(to_table(read), default=str)), path)


_TOML = b"""
[models."smollm2:135m"]
enabled = false

[drafters.remote]
url = "http://127.0.0.1:1"
"""
_TOML_VALUES = (
    b"0", b"-1", b"9" * 30, b"9" * 5000, b"1e400", b"nan", b"inf", b"true", b'""', b'"\\ud800"', b'"\\u0000"', b"[]",
    b"[[]]", b"{}", b"[" * 2000, b"[" * 100 + b"]" * 100, b"1979-05-27T07:32:00Z", b'"' + b"x" * 100_000 + b'"', b"'''",
    b'["a", 1]', b'[""]', b'["/"]', b'"0.0.0.0:99999999"', b'"\\n"', b"\xff", b"{a = 1, a = 2}", b'"../../x"',
)  # fmt: skip

TARGETS: Mapping[str, Callable[[Path], Files]] = {
    made.name: made for made in (Gguf, Manifests, Blobs, Tensors, Tokenizers, Certificates, Memory, Configs)
}


@contextlib.contextmanager
def opened(make: Callable[[Path], Files], folder: Path) -> Iterator[Files]:
    """A reader with a new folder, checked with a sound file."""
    folder.mkdir(parents=True)
    reader = make(folder)
    reader.probe()
    yield reader


def _gguf_parts() -> list[bytes]:
    """A header of all kinds of values, field by field, and the data of its tensors."""
    values = [
        ("general.architecture", _string("llama")),
        ("general.alignment", _number("I", 4, 32)),
        ("general.file_type", _number("I", 4, 2)),
        ("llama.context_length", _number("I", 4, 512)),
        ("llama.embedding_length", _number("I", 4, 32)),
        ("llama.block_count", _number("Q", 10, 1)),
        ("llama.attention.head_count", _number("I", 4, 2)),
        ("llama.rope.freq_base", _number("f", 6, 1e4)),
        ("tokenizer.ggml.add_bos_token", _number("B", 7, 1)),
        ("tokenizer.ggml.model", _string("gpt2")),
        ("tokenizer.chat_template", _string("{{ messages }}")),
        ("tokenizer.ggml.tokens", _strings("<s>", "</s>", "a", "b")),
        ("tokenizer.ggml.token_type", _numbers("i", 5, 3, 3, 1, 1)),
        ("tokenizer.ggml.scores", _numbers("f", 6, 0.0, 0.5, 1.0, -1.0)),
        ("tokenizer.ggml.merges", _strings("a b")),
    ]
    tensors = ("token_embd.weight", "blk.0.attn_q.weight")
    parts = [b"GGUF", struct.pack("<I", 3), struct.pack("<Q", len(tensors)), struct.pack("<Q", len(values))]
    for key, value in values:
        parts += [*_text(key), *value]
    for index, name in enumerate(tensors):
        parts += [*_text(name), struct.pack("<I", 2), struct.pack("<Q", 32), struct.pack("<Q", 4)]
        parts += [struct.pack("<I", 2), struct.pack("<Q", index * 96)]  # Q4_0
    size = sum(map(len, parts))
    return [*parts, bytes(-size % 32 + 192)]


def _text(value: str) -> list[bytes]:
    data = text(value)
    return [data[:8], data[8:]]


def _string(value: str) -> list[bytes]:
    return [struct.pack("<I", 8), *_text(value)]


def _strings(*values: str) -> list[bytes]:
    inner = [part for value in values for part in _text(value)]
    return [struct.pack("<I", 9), struct.pack("<I", 8), struct.pack("<Q", len(values)), *inner]


def _number(code: str, kind: int, value: float) -> list[bytes]:
    return [struct.pack("<I", kind), struct.pack("<" + code, value)]


def _numbers(code: str, kind: int, *values: float) -> list[bytes]:
    inner = [struct.pack("<" + code, value) for value in values]
    return [struct.pack("<I", 9), struct.pack("<I", kind), struct.pack("<Q", len(values)), *inner]


def _passages() -> list[Passage]:
    return [Passage(4e9 + i, array("i", range(i, i + 10))) for i in range(3)]


def _certificate(identity: Identity) -> Certificate:
    setting = EngineSetting("bf16", "f16", True, False, (("GGML_SWITCH", "0"),))
    lane = Lane("wide", (1, 2, 3, 8), setting, "lane", "", 512, True, 1024)
    return certificate_of(identity, lane)
