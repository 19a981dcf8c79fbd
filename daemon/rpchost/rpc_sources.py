"""The sources of libggml-rpc: those in llama-cpp-python's own source package, of the version that is installed.

The package is 76 MB, of which a hundredth is needed; that is kept in the cache folder, so that nothing is downloaded
twice.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from pilotfish.daemon.kernels.kernels_here import PACKAGE
from pilotfish.hooks.errors import WorldError

_GGML = "vendor/llama.cpp/ggml"
_FOLDERS = (f"{_GGML}/include", f"{_GGML}/src", f"{_GGML}/src/ggml-rpc")  # without what lies deeper
_ENDS = (".h", ".hpp", ".cpp")
_NEEDED = f"{_GGML}/src/ggml-rpc/ggml-rpc.cpp"


def sources_of(version: str, cache: Path, source: Path | None, say: Callable[[str], None]) -> Path:
    """ggml's folder of `PACKAGE` in that version, unpacked below `cache`.

    `source` is its source package; None has pip download it. Raises WorldError with the remedy.
    """
    kept = cache / f"llama-rpc-sources-{version}"
    if not (kept / _NEEDED).is_file():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="llama-rpc-") as scratch:
            if source is None:
                say(f"Downloading the sources of {PACKAGE} {version} (76 MB, once).")
                source = _download(version, Path(scratch))
            unpacked = Path(scratch) / "sources"
            _unpack(source, version, unpacked)
            shutil.rmtree(kept, ignore_errors=True)
            unpacked.rename(kept)
    return kept / _GGML


def _download(version: str, folder: Path) -> Path:
    """The source package, which pip looks into before it is content, without compiling anything."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps")
    command = [*pip, "--no-binary", PACKAGE, "--dest", str(folder), f"{PACKAGE}=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = next(folder.glob("*.tar.gz"), None)
    if done.returncode or found is None:
        last = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        raise WorldError(
            f"the sources of {PACKAGE} {version} cannot be downloaded: {last}; try again with a network, or download "
            f"{PACKAGE.replace('-', '_')}-{version}.tar.gz elsewhere and name it with --source"
        )
    return found


def _unpack(source: Path, version: str, folder: Path) -> None:
    top = f"{PACKAGE.replace('-', '_')}-{version}"
    try:
        with tarfile.open(source) as package:
            found = [member for member in package if _is_needed(PurePosixPath(member.name), top)]
            package.extractall(folder, found, filter="data")
    except (OSError, tarfile.TarError) as error:
        raise WorldError(f"{source} cannot be read as a source package: {error}; download it again") from error
    if not (folder / top / _NEEDED).is_file():
        raise WorldError(f"{source} is not the source package of {PACKAGE} {version}, which is the one installed here")
    for path in (folder / top).iterdir():
        path.rename(folder / path.name)


def _is_needed(path: PurePosixPath, top: str) -> bool:
    return any(path.parent == PurePosixPath(top, folder) for folder in _FOLDERS) and path.suffix in _ENDS
