"""A far end of llama.cpp's RPC engine, as a process: `python -m pilotfish.plugins._llama.far_end OPTIONS`.

`pilotfish.hooks.far_end` says what it tells and how it ends. ggml's server keeps the thread that it is called on, and
serves one near end after the other; the main thread answers what is asked on standard input. What ggml prints goes to
standard error.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import resource
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.far_end import FarEndOptions
from pilotfish.hooks.kernels import KERNELS
from pilotfish.plugins._llama.build import expected_folder
from pilotfish.plugins._llama.rpc_library import RpcLibrary, rpc_library_in

if TYPE_CHECKING:
    from pilotfish.plugins._llama.device_limit import DeviceLimit

_MODULE = "pilotfish.plugins._llama.far_end"
_PROCESSOR, _GPU, _INTEGRATED = 0, 1, 2  # ggml_backend_dev_type
_ROOM = 512 << 20  # bytes beside models and the messages that carry them: graphs, threads' stacks, what glibc keeps
_PATHS = ("cache", "folder", "state_dir")


def command_of(wanted: FarEndOptions) -> tuple[str, ...]:
    """The command of the process. Raises EngineError where it would have no libggml-rpc that fits."""
    folder = wanted.folder or expected_folder()
    rpc_library_in(folder)
    options = {name: _plain(value) for name, value in dataclasses.asdict(wanted).items()}
    return (sys.executable, "-P", "-m", _MODULE, json.dumps({**options, "folder": str(folder)}))


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _parse(text: str) -> FarEndOptions:
    options = json.loads(text)
    paths = {name: Path(options[name]) if options[name] else None for name in _PATHS}
    return FarEndOptions(**{**options, **paths, "devices": tuple(options["devices"])})


class _Devices:
    """The devices that are served, with their limits."""

    def __init__(self, ggml: Any, names: Sequence[str], memory: int | None) -> None:
        """Raises EngineError, naming what there is, for a name of which there is no device."""
        self._ggml = ggml
        there = {ggml.ggml_backend_dev_name(handle).decode(): handle for handle in _all_of(ggml)}
        if unknown := [name for name in names if name not in there]:
            raise EngineError(f"--device: there is no {unknown[0]}; there are: {', '.join(there)}")
        kinds = {name: ggml.ggml_backend_dev_type(handle) for name, handle in there.items()}
        chosen = names or [name for name, kind in kinds.items() if kind in (_GPU, _INTEGRATED)]
        chosen = chosen or [name for name, kind in kinds.items() if kind == _PROCESSOR]
        self.handles = [there[name] for name in chosen]
        self.processor_only = all(kinds[name] == _PROCESSOR for name in chosen)
        self._limits = self._limited([kinds[name] == _PROCESSOR for name in chosen], memory)

    def _limited(self, are_processors: Sequence[bool], memory: int | None) -> list[DeviceLimit]:
        from pilotfish.plugins._llama.device_limit import DeviceLimit

        if memory is None:
            return []
        each = zip(self.handles, are_processors, strict=True)
        return [DeviceLimit(self._ggml, handle, memory, is_processor) for handle, is_processor in each]

    def told(self) -> list[dict[str, Any]]:
        """As JSON has them."""
        return [self._about(handle) for handle in self.handles]

    def _about(self, handle: int) -> dict[str, Any]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._ggml.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
        return {
            "name": self._ggml.ggml_backend_dev_name(handle).decode("utf-8", "replace"),
            "description": self._ggml.ggml_backend_dev_description(handle).decode("utf-8", "replace"),
            "free": free.value,
            "total": total.value,
        }


def _all_of(ggml: Any) -> list[int]:
    return [ggml.ggml_backend_dev_get(i) for i in range(ggml.ggml_backend_dev_count())]


def _open_ggml(folder: Path) -> Any:
    """The functions of devices, their backends loaded: builds with a library for each look beside the program first."""
    from pilotfish.plugins._llama.devices import ggml_functions

    ggml = ggml_functions()
    if not ggml.ggml_backend_dev_count():
        ggml.ggml_backend_load_all_from_path(os.fsencode(folder))
    return ggml


def _limit_messages(memory: int) -> None:
    """Whoever sends must not be able to take more than a model and the message that brings it (Linux only).

    A message that is longer than what is left is refused, and its connection closed.
    """
    status = Path("/proc/self/status")
    if not status.is_file():
        return
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    now = int(lines["VmData"].split()[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (now + 2 * memory + _ROOM, resource.RLIM_INFINITY))


def main(argv: Sequence[str]) -> int:
    """Serve until standard input ends. The exit code of a server that could not begin."""
    wanted = _parse(argv[0])
    wire = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # ggml prints there
    try:
        assert wanted.folder is not None  # named by `command_of`
        os.environ["LLAMA_CPP_LIB_PATH"] = str(wanted.folder)
        os.environ.pop(KERNELS, None)  # near ends compute without them
        from pilotfish.plugins._cells.setting import default_threads
        from pilotfish.plugins._llama.library import engine_pin, send_log_to

        send_log_to("stderr")
        rpc, pin = RpcLibrary(wanted.folder), engine_pin(wanted.state_dir)
        devices = _Devices(_open_ggml(wanted.folder), wanted.devices, wanted.memory)
    except (EngineError, ImportError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if wanted.memory is not None and devices.processor_only:
        _limit_messages(wanted.memory)
    threads = wanted.threads or default_threads()
    _serve(rpc, wanted, threads, devices.handles)
    about = {"engine": pin.version, "fingerprint": pin.fingerprint, "threads": threads}
    wire.write(json.dumps({**about, "devices": devices.told()}) + "\n")
    for _ in sys.stdin:
        wire.write(json.dumps({"devices": devices.told()}) + "\n")
    os._exit(0)  # the server's thread does not end


def _serve(rpc: RpcLibrary, wanted: FarEndOptions, threads: int, handles: Sequence[int]) -> None:
    def serve() -> None:
        rpc.start_server(f"127.0.0.1:{wanted.port}", wanted.cache, threads, handles)
        os._exit(1)  # it could not listen, and has said so

    threading.Thread(target=serve, name="rpc", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
