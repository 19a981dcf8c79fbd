"""Which build of Ollama a binary is, from what the Go linker leaves in it.

Every Go program carries a block that `go version -m` prints: a magic word at a multiple of 16 bytes, a header of
32 bytes, then two strings with their lengths before them, the Go version and the module information. The layout is
described in the Go standard library's package debug/buildinfo; only the form that Go 1.18 and later write is read.
The block is found by searching, so ELF, Mach-O and universal binaries are all the same here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pilotfish.hooks.errors import UsageError

_MAGIC = b"\xff Go buildinf:"
_ALIGNMENT = 16
_HEADER_BYTES = 32
_FLAGS_AT = 15
_INLINE_STRINGS = 2
_SENTINEL_BYTES = 16  # on either side of the module information
_MAX_STRING = 1 << 22
_MODULE = "github.com/ollama/ollama"
_LINKED_VERSION = re.compile(re.escape(_MODULE) + r"/version\.Version=v?([^\s\"']+)")
_PSEUDO_VERSION = re.compile(r"-(0\.)?\d{14}-[0-9a-f]{12}")  # v0.33.3-0.20260102030405-abcdefabcdef
_PRINTED_VERSION = re.compile(r"client version is (\S+)")
_UNNAMED = frozenset({"", "0.0.0", "(devel)"})
PRINT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Build:
    """A build of Ollama. `version` is empty for one that was never given a version; `revision` is a commit's full
    hash, empty when the build was not made in a repository; `dirty` says that the repository had changes."""

    version: str = ""
    revision: str = ""
    dirty: bool = False

    def __str__(self) -> str:
        revision = f"revision {self.revision[:12]}" if self.revision else "revision unknown"
        dirty = ", with local changes" if self.dirty else ""
        return f"{self.version or 'development build'} ({revision}{dirty})"


def read_build(binary: Path) -> Build:
    """The build of an `ollama` binary.

    Reads the build information; where that names no version the binary itself is asked (`ollama --version`, with an
    address where no server listens). Raises UsageError for a file that is no Go program, such as a wrapper script.
    """
    settings = module_information(binary)
    if settings is None or settings.get("path") != _MODULE:
        raise UsageError(f"{binary}: not Ollama's own program (a wrapper script?); name that with --ollama")
    stated = settings.get("mod", "")
    linked = _LINKED_VERSION.search(settings.get("-ldflags", ""))
    version = linked[1] if linked else _released(stated)
    return Build(
        version=version or _printed_version(binary),
        revision=settings.get("vcs.revision", ""),
        dirty=settings.get("vcs.modified") == "true" or stated.endswith("+dirty"),
    )


def module_information(binary: Path) -> Mapping[str, str] | None:
    """The build settings of a Go program by name, its main package as `path` and that module's version as `mod`.

    None for files that are no such program.
    Raises UsageError when the file cannot be read.
    """
    try:
        data = binary.read_bytes()  # not a map: one that is cut short meanwhile kills the process
    except OSError as error:
        raise UsageError(f"{binary}: cannot be read: {error.strerror}; check the path and its owner") from error
    return next((_settings(text) for text in _blocks(data)), None)


def _blocks(data: bytes) -> Iterator[str]:
    """The module information of every well-formed block; the magic word also occurs in programs that look for it."""
    at = data.find(_MAGIC)
    while at >= 0:
        if at % _ALIGNMENT == 0 and (text := _module_text(data, at)) is not None:
            yield text
        at = data.find(_MAGIC, at + 1)


def _module_text(data: bytes, start: int) -> str | None:
    if start + _HEADER_BYTES > len(data) or not data[start + _FLAGS_AT] & _INLINE_STRINGS:
        return None
    version, at = _string(data, start + _HEADER_BYTES)
    if version is None or not version.startswith(b"go"):
        return None
    text, _ = _string(data, at)
    if text is None or len(text) < 2 * _SENTINEL_BYTES:
        return None
    return text[_SENTINEL_BYTES:-_SENTINEL_BYTES].decode("utf-8", "replace")


def _string(data: bytes, at: int) -> tuple[bytes | None, int]:
    """A string with its length before it, as an unsigned LEB128 number, and where the next one begins."""
    length = shift = 0
    while at < len(data) and shift <= 28:
        byte = data[at]
        length |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            end = at + length
            return (data[at:end], end) if length <= _MAX_STRING and end <= len(data) else (None, at)
    return None, at


def _settings(text: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        kind, _, rest = line.partition("\t")
        if kind == "path":
            found["path"] = rest
        elif kind == "mod":
            found["mod"] = rest.split("\t")[1] if "\t" in rest else ""
        elif kind == "build":
            key, _, value = rest.partition("=")
            found[key] = _unquoted(value)
    return found


def _unquoted(value: str) -> str:
    """Values with spaces or quotes are written as Go string literals, which are JSON's for what occurs here."""
    if not value.startswith('"'):
        return value.strip("`")
    try:
        return str(json.loads(value))
    except ValueError:
        return value


def _released(module_version: str) -> str:
    """A release's version; empty for what names none, such as a pseudo-version between two releases."""
    version = module_version.removesuffix("+dirty").removeprefix("v")
    return "" if version in _UNNAMED or _PSEUDO_VERSION.search(version) else version


def _printed_version(binary: Path) -> str:
    environment = {**os.environ, "OLLAMA_HOST": "127.0.0.1:1"}  # a server that answers would give its own version
    try:
        printed = subprocess.run(
            [binary, "--version"], env=environment, capture_output=True, text=True, timeout=PRINT_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):  # the wrong platform, or it hangs: a build without a version
        return ""
    found = _PRINTED_VERSION.search(printed.stdout + printed.stderr)
    return "" if found is None or found[1] in _UNNAMED else found[1]
