"""An Ollama installation of a few bytes: a binary that carries build information, and a library folder."""

from __future__ import annotations

from pathlib import Path

MODULE = "github.com/ollama/ollama"


def go_binary(settings: str = "", version: str = "v0.33.2", path: str = MODULE) -> bytes:
    """The bytes of a program as the Go linker leaves them, as far as its build information goes."""
    module = f"path\t{path}\nmod\t{path}\t{version}\th1:abc=\ndep\texample.com/x\tv1.0.0\th1:def=\n{settings}"
    block = b"\xff Go buildinf:" + bytes([8, 2]) + bytes(16)
    text = block + _string(b"go1.26.0") + _string(b"S" * 16 + module.encode() + b"E" * 16)
    # A program that reads build information of others holds the magic word itself, at no multiple of 16.
    decoy = b"\x7fELF" + bytes(5) + b"\xff Go buildinf:" + b"\x08\x02" + bytes(40)
    return decoy + bytes(-len(decoy) % 16) + text + bytes(64)


def install(prefix: Path, binary: bytes | None = None) -> Path:
    """A Linux layout under `prefix`; returns the path of its `ollama`."""
    ollama = prefix / "bin" / "ollama"
    library = prefix / "lib" / "ollama"
    (library / "cuda_v13").mkdir(parents=True, exist_ok=True)
    ollama.parent.mkdir(exist_ok=True)
    ollama.write_bytes(go_binary() if binary is None else binary)
    ollama.chmod(0o755)
    (library / "libllama.so.0.6").write_bytes(b"llama")
    (library / "libllama.so.0").unlink(missing_ok=True)
    (library / "libllama.so.0").symlink_to("libllama.so.0.6")
    (library / "cuda_v13" / "libggml-cuda.so").write_bytes(b"cuda")
    (library / "llama-quantize").write_bytes(b"quantize")
    server = library / "llama-server"
    server.write_text('#!/bin/sh\nprintf "stock\\n"\nprintf "<%s>\\n" "$@"\nenv\n')
    server.chmod(0o755)
    return ollama


def _string(data: bytes) -> bytes:
    length, prefix = len(data), b""
    while length > 0x7F:
        prefix += bytes([length & 0x7F | 0x80])
        length >>= 7
    return prefix + bytes([length]) + data
