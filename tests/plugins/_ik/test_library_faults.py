"""What can be wrong with the library's files: each costs an error with a cause and a remedy, and no process.

The files are the installed ones, damaged in a copy; what looks at them is a real child.
"""

from __future__ import annotations

import importlib.util
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, TargetPin
from pilotfish.plugins._ik import child
from pilotfish.plugins.verifiers.ik import IkVerifier
from tests.plugins.verifiers.tiny_gguf import write_llama

pytestmark = pytest.mark.model

PinOf = Callable[[Path], TargetPin]
Damage = Callable[[Path], None]
LLAMA = "ik_llama_cpp/lib/libllama.so"
BUNDLED = "ik_llama_cpp_python.libs"
STRUCTURES = "ik_llama_cpp/_ctypes_api.py"
PT_LOAD, PT_DYNAMIC, DT_INIT = 1, 2, 12
ILLEGAL, STORE_TO_NOWHERE = b"\x0f\x0b", b"\x31\xc0\x89\x00"  # ud2; xor eax, eax; mov [rax], eax
EXIT = b"\x31\xff\xb8\x3c\x00\x00\x00\x0f\x05"  # exit(0)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a copy of the installed package in it: a link would change the times of its files, by which others
    know them."""
    spec = importlib.util.find_spec("ik_llama_cpp")
    assert spec is not None
    assert spec.submodule_search_locations
    package = Path(spec.submodule_search_locations[0])
    shutil.copytree(package, tmp_path / "ik_llama_cpp", ignore=shutil.ignore_patterns("bin"))
    shutil.copytree(package.parent / BUNDLED, tmp_path / BUNDLED)
    return tmp_path


def rewrite(path: Path, data: bytes) -> None:
    """Other bytes in a new file."""
    path.unlink()
    path.write_bytes(data)


def truncate(path: Path) -> None:
    rewrite(path, path.read_bytes()[: path.stat().st_size // 2])


def bundled(site: Path, name: str) -> Path:
    return next((site / BUNDLED).glob(f"{name}*"))


def run_at_load(path: Path, code: bytes) -> None:
    """Put `code` where an x86-64 library begins to run when it is loaded."""
    data = bytearray(path.read_bytes())
    table, size, count = *struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54)
    segments = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    offset, length = next((at, filled) for kind, _, at, _, _, filled in segments if kind == PT_DYNAMIC)
    entries = dict(struct.unpack_from("<QQ", data, offset + i) for i in range(0, length, 16))
    start = entries[DT_INIT]
    at = next(o + start - v for kind, _, o, v, _, filled in segments if kind == PT_LOAD and v <= start < v + filled)
    data[at : at + len(code)] = code
    rewrite(path, bytes(data))


def replace_text(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    rewrite(path, text.replace(old, new).encode())


DAMAGES: dict[str, tuple[Damage, str]] = {
    "truncated": (lambda site: truncate(site / LLAMA), "cut short"),
    "truncated beside it": (lambda site: truncate(bundled(site, "libggml")), "cut short"),
    "empty": (lambda site: rewrite(site / LLAMA, b""), "file too short"),
    "no library": (lambda site: rewrite(site / LLAMA, b"<html>" * 1000), "invalid ELF header"),
    "missing beside it": (lambda site: bundled(site, "libggml").unlink(), "No such file"),
    "missing OpenMP": (lambda site: bundled(site, "libgomp").unlink(), "libgomp"),
    "another processor": (lambda site: run_at_load(site / LLAMA, ILLEGAL), "another processor"),
    "another processor beside it": (lambda site: run_at_load(bundled(site, "libggml"), ILLEGAL), "another processor"),
    "a crash": (lambda site: run_at_load(site / LLAMA, STORE_TO_NOWHERE), "SIGSEGV"),
    "an exit": (lambda site: run_at_load(site / LLAMA, EXIT), "without an answer"),
    "too new a system": (
        lambda site: rewrite(site / LLAMA, (site / LLAMA).read_bytes().replace(b"GLIBC_2.17", b"GLIBC_2.97")),
        "GLIBC_2.97",
    ),
    "a field more": (
        lambda site: replace_text(site / STRUCTURES, '("n_batch", c', '("n_new", ctypes.c_uint32), ("n_batch", c'),
        "is not the one of",
    ),
    "a field less": (
        lambda site: replace_text(site / STRUCTURES, '        ("offload_policy", ctypes.c_void_p),\n', ""),
        "a larger structure",
    ),
    "half of the description": (lambda site: truncate(site / STRUCTURES), "SyntaxError"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_costs_an_error_with_cause_and_remedy(
    kind: str, site: Path, pin_of: PinOf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    damage, cause = DAMAGES[kind]
    damage(site)
    monkeypatch.setenv("IK_LLAMA_CPP_LIB_PATH", str(site / LLAMA))
    monkeypatch.setenv("PYTHONPATH", str(site))  # for the child: what is loaded here stays loaded
    pin = pin_of(write_llama(tmp_path / "m.gguf"))
    with pytest.raises(EngineError) as caught:
        IkVerifier().load(pin, None, EngineOptions(n_ctx=256))
    message = str(caught.value)
    for named in (pin.name, str(site / LLAMA), cause, "pip install"):
        assert named in message


def test_a_library_that_hangs_is_given_up(
    site: Path, pin_of: PinOf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run_at_load(site / LLAMA, b"\xeb\xfe")  # jump to itself
    monkeypatch.setenv("IK_LLAMA_CPP_LIB_PATH", str(site / LLAMA))
    monkeypatch.setattr(child, "SECONDS", 2.0)
    with pytest.raises(EngineError, match="more than 2 seconds"):
        IkVerifier().load(pin_of(write_llama(tmp_path / "m.gguf")), None, EngineOptions(n_ctx=256))
