"""Makes a folder of llama-cpp-python's libraries with libggml-rpc beside them, which its packages come without.

ggml's RPC backend is two files that need libggml-base alone, so the engine stays the one that is installed, bit for
bit. Its libraries are copied, since each looks for the others beside itself.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pilotfish.daemon.kernels.kernels_here import PACKAGE, installed_libllama
from pilotfish.daemon.processes.compiling import compiler, run_or_fail
from pilotfish.daemon.rpchost.rpc_sources import sources_of
from pilotfish.hooks.errors import EngineMissing, UsageError
from pilotfish.hooks.far_end import BUILT_FOR

FOLDER = "libllama-rpc"  # in the cache folder
_INSTALL = "pip install 'pilotfish[llama]'"
_MAC = sys.platform == "darwin"
_NAME = "libggml-rpc.dylib" if _MAC else "libggml-rpc.so"
_LINKED = ("-dynamiclib", "-Wl,-rpath,@loader_path") if _MAC else ("-shared", "-Wl,-rpath,$ORIGIN")
_LOADS = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.ggml_backend_rpc_reg.restype = ctypes.c_void_p
sys.exit(not library.ggml_backend_rpc_reg())
"""


def build(output: Path, cache: Path, source: Path | None, say: Callable[[str], None]) -> None:
    """Make `output`, replacing what an earlier build left there. `source` as for `sources_of`.

    Raises EngineMissing without llama-cpp-python, UsageError when something else lies at `output`, and WorldError
    without a compiler, without the sources, or when the result does not load.
    """
    version, libraries = _installed()
    with_compiler = compiler()
    _need_replaceable(output)
    sources = sources_of(version, cache, source, say)
    say(f"Compiling {_NAME} (a few seconds).")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        for path in libraries:
            shutil.copy2(path, made)  # a link would change the times of the package's file, and what is known of it
        _compile(with_compiler, sources, made)
        _need_loadable(made / _NAME)
        (made / BUILT_FOR).write_text(f"{version}\n")
        with contextlib.suppress(FileNotFoundError):
            output.rename(Path(scratch) / "before")
        made.rename(output)


def _installed() -> tuple[str, list[Path]]:
    """The version of llama-cpp-python and its libraries."""
    libllama = installed_libllama()
    if libllama is None:
        raise EngineMissing(f"{PACKAGE} is not installed with its libraries; install it with: {_INSTALL}")
    found = [path for path in libllama.folder.glob("lib*") if ".so" in path.name or path.suffix == ".dylib"]
    return libllama.version, found


def _need_replaceable(output: Path) -> None:
    if output.is_dir():
        if not any(output.iterdir()) or (output / _NAME).is_file():
            return
    elif not output.exists():
        return
    raise UsageError(f"--output: {output} holds something else; name a folder of its own")


def _compile(program: str, sources: Path, folder: Path) -> None:
    defined = ("-DGGML_BACKEND_SHARED", "-DGGML_BACKEND_BUILD", "-DGGML_SHARED")
    # The same bytes wherever the sources lie: the fingerprint of the folder is a part of certificates.
    command = [program, "-O2", "-std=c++17", "-fPIC", "-pthread", f"-ffile-prefix-map={sources}=.", *defined]
    command += [f"-I{sources / 'include'}", f"-I{sources / 'src'}"]
    command += [str(sources / "src" / "ggml-rpc" / name) for name in ("ggml-rpc.cpp", "transport.cpp")]
    command += [*_LINKED, f"-L{folder}", "-lggml-base", "-o", str(folder / _NAME)]
    run_or_fail(command, f"{_NAME} cannot be compiled with {program}")


def _need_loadable(library: Path) -> None:
    run_or_fail((sys.executable, "-I", "-c", _LOADS, str(library)), f"{_NAME} was compiled and does not load")
