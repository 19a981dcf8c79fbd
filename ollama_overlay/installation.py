"""The user's own Ollama: where its binary is and which folder holds `llama-server`. Nothing here writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pilotfish.hooks.errors import UsageError

SERVER = "llama-server"
USUAL_PLACES = (
    Path("/usr/local/bin/ollama"),
    Path("/usr/bin/ollama"),
    Path("/opt/homebrew/bin/ollama"),
    Path("/Applications/Ollama.app/Contents/Resources/ollama"),
    Path("~/Applications/Ollama.app/Contents/Resources/ollama"),
    Path("~/.local/bin/ollama"),
)


@dataclass(frozen=True, slots=True)
class Installation:
    """An Ollama that is installed. Both paths are free of symlinks up to their last part."""

    binary: Path
    library: Path  # the folder with llama-server and its libraries

    @property
    def server(self) -> Path:
        """The stock llama-server."""
        return self.library / SERVER

    def files(self) -> Iterator[Path]:
        """Paths of everything in the library folder that is no folder (links to folders are), relative to it.

        A folder that holds the `ollama` binary beside its libraries, as the macOS app does, is taken without it.
        """
        for folder, folders, names in os.walk(self.library):
            folders.sort()
            linked = [name for name in folders if Path(folder, name).is_symlink()]
            for name in sorted([*names, *linked]):
                path = Path(folder, name)
                if path != self.binary:
                    yield path.relative_to(self.library)

    def libraries(self) -> list[Path]:
        """llama-server and every shared library, each file once however many links lead to it."""
        named = (self.library / name for name in self.files() if name.name == SERVER or _is_library(name.name))
        return sorted({path.resolve() for path in named if path.exists()})


def find(named: Path | None = None, is_ours: Callable[[Path], bool] = lambda path: False) -> Installation:
    """The Ollama to use: `named`, else the first on PATH, else the first in the usual places.

    `is_ours` tells an overlaid binary from the user's own, so that a tree whose folder leads the PATH is not taken for
    the original. Raises UsageError saying what is missing.
    """
    if named is not None:
        binary = named.expanduser().resolve()
        if not binary.is_file():
            raise UsageError(f"{named}: no such file; give the path of the ollama binary with --ollama")
        if is_ours(binary):
            raise UsageError(f"{named}: belongs to an overlay; give the path of your own Ollama with --ollama")
        return at(binary)
    binaries = (path.resolve() for path in _candidates() if os.access(path, os.X_OK) and path.is_file())
    for binary in binaries:
        if not is_ours(binary):
            return at(binary)
    raise UsageError(
        "no Ollama was found on PATH or in the usual places; install it from https://ollama.com/download, "
        "or give the path of its binary with --ollama"
    )


def at(binary: Path, platform: str = sys.platform) -> Installation:
    """The installation that `binary` (resolved) belongs to: the first library folder in the order Ollama uses.

    Raises UsageError when there is none with a llama-server in it.
    """
    folders = [folder.resolve() for folder in _library_folders(binary.parent, platform) if folder.is_dir()]
    for folder in folders:
        if (folder / SERVER).is_file():
            return Installation(binary, folder)
    looked = ", ".join(map(str, folders)) or f"{binary.parent.parent / 'lib' / 'ollama'}, which does not exist"
    raise UsageError(f"{binary}: no {SERVER} in {looked}; update Ollama: versions that run models by it bring one")


def _library_folders(folder: Path, platform: str) -> tuple[Path, ...]:
    beside, above = folder / "lib" / "ollama", folder.parent / "lib" / "ollama"
    return (beside, above, folder) if platform == "darwin" else (above, beside)


def _candidates() -> Iterator[Path]:
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if folder:
            yield Path(folder) / "ollama"
    yield from (place.expanduser() for place in USUAL_PLACES)


def _is_library(name: str) -> bool:
    return name.endswith((".so", ".dylib")) or ".so." in name
