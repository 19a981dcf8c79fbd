"""The overlaid tree: the user's Ollama with one file replaced.

    <prefix>/bin/ollama               the user's binary, as a hard link or a copy: Ollama resolves symlinks before it
                                      looks for its libraries, and would find its own
    <prefix>/lib/ollama/...           a symlink to every file of the original folder
    <prefix>/lib/ollama/llama-server  the shim
    <prefix>/pilotfish-overlay.json   what the tree was made from

A tree is made beside its place and exchanged with the one that is there, in one step, so that whoever looks finds the
old one or the new one. Where the system cannot exchange (`exchange`), there is a moment between two renames; the next
command that works on the tree puts back what an installation that was killed in it left. Nothing of the original is
ever written to; a hard link shares the original's bytes, which nobody here changes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pilotfish.daemon.config.paths import data_dir
from pilotfish.daemon.processes.folder_lock import alone_in
from pilotfish.hooks.errors import PilotfishError, UsageError
from pilotfish.manifests.fingerprints import library_fingerprint
from pilotfish.ollama_overlay import record
from pilotfish.ollama_overlay.buildinfo import read_build
from pilotfish.ollama_overlay.exchange import exchange
from pilotfish.ollama_overlay.installation import SERVER, Installation, find
from pilotfish.ollama_overlay.record import Record
from pilotfish.ollama_overlay.service import damaged_files, write_files
from pilotfish.ollama_overlay.shim_script import shim_script

LIBRARY = Path("lib", "ollama")
BINARY = Path("bin", "ollama")
OLD = ".old"  # ends the name of a tree that is being replaced


@dataclass(frozen=True, slots=True)
class Status:
    """`record` is None when no overlay is installed; `drift` says, for a person, what no longer fits."""

    prefix: Path
    record: Record | None
    drift: tuple[str, ...] = ()


def default_prefix() -> Path:
    """Where the overlay goes unless told otherwise."""
    return data_dir() / "ollama"


def is_overlay(binary: Path) -> bool:
    """Whether an `ollama` binary lies in an overlay."""
    return (binary.parent.parent / record.FILE_NAME).is_file()


def install(
    prefix: Path, named: Path | None = None, state_dir: Path | None = None, python: Path = Path(sys.executable)
) -> tuple[Record, bool]:
    """Make the overlay at `prefix` for the Ollama `named`, or the one that is found; whether anything changed.

    `python` runs pilotfish. A tree that already fits is left alone; any other overlay at `prefix` is replaced. Raises
    UsageError, naming what is in the way.
    """
    prefix = prefix.expanduser().absolute()
    _check_vacant(prefix)
    original = find(named, is_overlay)
    _check_apart(prefix, original)
    wanted = _describe(original, state_dir, python)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with _alone_at(prefix):
        if _known(prefix) == wanted and not list(_damage(prefix, wanted)):
            return wanted, False
        scratch = _scratch(prefix)
        try:
            scratch.chmod(0o755)
            _build(scratch, wanted)
            write_files(scratch, prefix / BINARY, python)
            _put_in_place(scratch, prefix)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return wanted, True


def status(prefix: Path, state_dir: Path | None = None) -> Status:
    """What is installed at `prefix`, and whether the original or the tree changed since. Reads only."""
    prefix = prefix.expanduser().absolute()
    found = record.read(prefix)
    if found is None:
        return Status(prefix, None)
    return Status(prefix, found, (*_changes(found, state_dir), *_damage(prefix, found)))


def remove(prefix: Path) -> None:
    """Take the overlay away, and nothing else. Raises UsageError when there is none at `prefix`."""
    prefix = prefix.expanduser().absolute()
    with _alone_at(prefix) if prefix.parent.is_dir() else contextlib.nullcontext():
        if not (prefix / record.FILE_NAME).is_file():
            raise UsageError(f"{prefix}: no overlay is installed there; see: pilotfish overlay status")
        scratch = _scratch(prefix)
        prefix.rename(scratch)  # in one step: half a tree would be taken for somebody's files
        shutil.rmtree(scratch)


@contextlib.contextmanager
def _alone_at(prefix: Path) -> Iterator[None]:
    """One command at a time works on the tree, and what one that was killed left is cleared away first."""
    with alone_in(prefix.parent):
        left = [path for path in prefix.parent.iterdir() if path.name.startswith(_scratch_name(prefix))]
        whole = [path for path in left if path.suffix == OLD and (path / record.FILE_NAME).is_file()]
        if whole and not prefix.exists():
            whole[0].rename(prefix)
        for path in left:
            shutil.rmtree(path, ignore_errors=True)
        yield


def _scratch(prefix: Path) -> Path:
    """A new folder beside `prefix`, on the same file system."""
    return Path(tempfile.mkdtemp(prefix=_scratch_name(prefix), dir=prefix.parent))


def _scratch_name(prefix: Path) -> str:
    return f".{prefix.name}.pilotfish-overlay-"


def _describe(original: Installation, state_dir: Path | None, python: Path) -> Record:
    return Record(
        original=original,
        build=read_build(original.binary),
        fingerprint=library_fingerprint(original.libraries(), state_dir),
        binary=record.stamp(original.binary),
        python=python,
    )


def _build(tree: Path, wanted: Record) -> None:
    binary = tree / BINARY
    binary.parent.mkdir(parents=True)
    _link_or_copy(wanted.original.binary, binary)
    library = tree / LIBRARY
    library.mkdir(parents=True)
    for name in wanted.original.files():
        link = library / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if name != Path(SERVER):
            link.symlink_to(wanted.original.library / name)
    shim = library / SERVER
    shim.write_text(shim_script(wanted.original.server, wanted.python), encoding="utf-8", errors="surrogateescape")
    shim.chmod(0o755)
    wanted.write(tree)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or a kernel that protects files of other owners from being linked
        shutil.copy2(source, target)


def _put_in_place(tree: Path, prefix: Path) -> None:
    """Make `tree` the one at `prefix`. The old one then has `tree`'s name, or is gone."""
    if exchange(tree, prefix):
        return
    old = tree.with_name(f"{tree.name}{OLD}")
    with contextlib.suppress(FileNotFoundError):
        prefix.rename(old)
    try:
        tree.rename(prefix)
    except OSError:
        with contextlib.suppress(OSError):
            old.rename(prefix)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _check_vacant(prefix: Path) -> None:
    if prefix.is_symlink() or (prefix.exists() and not prefix.is_dir()):
        raise UsageError(f"{prefix}: is not a folder; choose another --prefix")
    if prefix.is_dir() and any(prefix.iterdir()) and not (prefix / record.FILE_NAME).is_file():
        raise UsageError(f"{prefix}: holds other files; choose an empty or a new folder as --prefix")


def _check_apart(prefix: Path, original: Installation) -> None:
    """No part of the original may come to lie in the tree, or the tree in it."""
    place = prefix.resolve()
    for folder in (original.library, original.binary.parent):
        if place == folder or folder.is_relative_to(place) or place.is_relative_to(original.library):
            raise UsageError(f"{prefix}: is part of the installation in {folder}; choose another --prefix")


def _known(prefix: Path) -> Record | None:
    try:
        return record.read(prefix)
    except PilotfishError:  # a damaged record is a reason to make the tree again
        return None


def _changes(found: Record, state_dir: Path | None) -> Iterator[str]:
    """How the original differs from what the tree was made from."""
    original = found.original
    try:
        now = record.stamp(original.binary)
    except OSError:
        yield f"{original.binary} is gone"
        return
    if now != found.binary:
        build = read_build(original.binary)
        what = f"from {found.build} to {build}" if build != found.build else "and kept its version"
        yield f"{original.binary} was replaced: it changed {what}"
    if not original.server.is_file():
        yield f"{original.server} is gone"
    elif library_fingerprint(original.libraries(), state_dir) != found.fingerprint:
        yield f"the libraries in {original.library} changed"


def _damage(prefix: Path, found: Record) -> Iterator[str]:
    """What is wrong with the tree itself."""
    library = prefix / LIBRARY
    if not os.access(prefix / BINARY, os.X_OK):
        yield f"{prefix / BINARY} is missing"
    if not os.access(found.python, os.X_OK):
        yield f"{found.python}, which runs pilotfish, is gone: every model runs on the stock llama-server"
    yield from damaged_files(prefix, prefix / BINARY, found.python)
    with contextlib.suppress(OSError):
        if (library / SERVER).read_text(errors="surrogateescape") == shim_script(found.original.server, found.python):
            yield from _broken_links(library, found.original)
            return
    yield f"{library / SERVER} is not the shim of this version of pilotfish"


def _broken_links(library: Path, original: Installation) -> Iterator[str]:
    wanted = {name for name in original.files() if name != Path(SERVER)} if original.library.is_dir() else set()
    present = {name for name in Installation(original.binary, library).files() if name != Path(SERVER)}
    for name in sorted(wanted - present):
        yield f"{original.library / name} is not linked"
    for name in sorted(present - wanted):
        yield f"{library / name} leads nowhere"
    for name in sorted(present & wanted):
        if not (library / name).is_symlink() or (library / name).readlink() != original.library / name:
            yield f"{library / name} is not a link to the original"
