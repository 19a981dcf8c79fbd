"""Other machines that compute layers of a model: their devices, and what happens when one of them is lost.

libllama's RPC backend ends the whole process where a connection breaks, on a thread of its own. What is told first is
whoever asked for it (`when_lost`), so that requests can be answered with the reason; the process ends all the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psutil

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, FarEnd
from pilotfish.plugins._llama.devices import local_devices
from pilotfish.plugins._llama.library import lib, library_folder
from pilotfish.plugins._llama.rpc_library import RpcLibrary

log = logging.getLogger("pilotfish.verifiers")

LOOK = 0.5  # seconds between looks at what is called
COMPUTING = 3.0  # deadlines that a call may take which computes, and cannot tell of progress
_RPC = "ggml-rpc"  # where connections break, in the library's sources
_PLACED = re.compile(r"(.*?:\d+): (.*)", re.DOTALL)
_ABORT = ctypes.CFUNCTYPE(None, ctypes.c_char_p)

Lost = Callable[[str], None]


class FarEnds:
    """The far ends of the model that this process loads. One process has one set of them."""

    def __init__(self, far_ends: Sequence[FarEnd], split: Sequence[float], deadline: float) -> None:
        """Connects to each. They were looked at a moment ago: where one is missing now, the process ends. Raises
        EngineError where the library cannot reach far ends, or the shares do not fit the devices."""
        self.endpoints = tuple(far_end.endpoint for far_end in far_ends)
        self._addresses = tuple(map(_address, self.endpoints))  # once: a name may stand for another one later, or none
        self._deadline = deadline
        self._lost: Lost = _end_process
        self._since: float | None = None  # when the library was called, or made progress, if it has not returned
        self._allowed = deadline  # seconds from then on
        self._watched_elsewhere = threading.Event()
        self._held: list[int] = []
        self._callback = _ABORT(self._aborts)
        library = RpcLibrary(library_folder())
        _ggml().ggml_set_abort_callback(self._callback)
        threading.Thread(target=self._watch, name="far ends", daemon=True).start()
        try:
            with self.called():
                handles = self._connected(library)
            self._devices = (ctypes.c_void_p * (len(handles) + 1))(*handles, None)
            self._split = _shares(split, len(handles))
        except EngineError:
            self.close()
            raise
        self._progress = lib.llama_progress_callback(self._go_on)

    def _connected(self, library: RpcLibrary) -> list[int]:
        """Devices over there and here."""
        servers = [library.devices_of(library.add_server(f"{host}:{port}")) for host, port in self._addresses]
        # The library connects anew whenever nothing of a far end is in use, as between two steps of a load.
        self._held += [_ggml().ggml_backend_dev_init(devices[0], None) for devices in servers]
        return [handle for devices in servers for handle in devices] + list(local_devices())

    def put_into(self, params: Any) -> None:
        """Have a model that is loaded with `params` spread over the far ends. Must live as long as the load."""
        params.devices = ctypes.cast(self._devices, ctypes.c_void_p)
        if self._split is not None:
            params.tensor_split = ctypes.cast(self._split, ctypes.POINTER(ctypes.c_float))
        params.progress_callback = self._progress
        params.split_mode = lib.LLAMA_SPLIT_MODE_LAYER

    @contextlib.contextmanager
    def called(self, deadlines: float = 1.0) -> Iterator[None]:
        """The library is called inside, and must return, or make progress, within as many deadlines."""
        self._allowed = deadlines * self._deadline
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._since = None

    def watching(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, a function of the library that computes, as in `called`."""

        def watched(*arguments: Any) -> Any:
            with self.called(COMPUTING):
                return call(*arguments)

        return watched

    def gone(self) -> tuple[str, ...]:
        """Those to which there is no connection any more, none where the system does not tell. Safe from any thread."""
        try:
            there = {connection.raddr[:2] for connection in _connections()}
        except (psutil.Error, OSError):
            return ()
        each = zip(self.endpoints, self._addresses, strict=True)
        return tuple(endpoint for endpoint, address in each if address not in there)

    def when_lost(self, call: Lost) -> None:
        """Have `call` told why, on a thread of the library's, before the process ends. It may wait, and end it. From
        now on whoever asks watches for silence."""
        self._lost = call
        self._watched_elsewhere.set()

    def close(self) -> None:
        """Let the far ends go, once nothing of the model is there any more; a second call does nothing."""
        self._watched_elsewhere.set()
        while self._held:
            _ggml().ggml_backend_free(self._held.pop())

    def lost(self, what: str) -> None:
        """Tell that nothing is computed any more."""
        named = self.gone() or self.endpoints
        which = f"the far end {named[0]} was" if len(named) == 1 else f"one of the far ends {', '.join(named)} was"
        self._lost(f"{which} lost ({what}); the model is loaded again once it is back")

    def _watch(self) -> None:
        while not self._watched_elsewhere.wait(LOOK):
            since = self._since
            if since is not None and (silent := time.monotonic() - since) > self._allowed:
                return self.lost(f"it was silent for {silent:.0f} s")

    def _aborts(self, message: bytes) -> None:
        """What the library says begins with a place in its sources; any of them may end the process."""
        text = message.decode("utf-8", "replace").strip()
        place, what = found.groups() if (found := _PLACED.fullmatch(text)) else ("", text)
        if _RPC in place or self.gone():
            return self.lost(what)
        self._lost(f"the engine's library ended the process ({what}); the model is loaded again with the next request")

    def _go_on(self, progress: float, user_data: Any) -> bool:
        self._since = time.monotonic()
        return True


@functools.cache
def _ggml() -> Any:
    ggml = ctypes.CDLL(lib._lib._name)  # the loaded library again; its dependencies' symbols resolve through it
    handle = ctypes.c_void_p
    ggml.ggml_set_abort_callback.argtypes = [_ABORT]
    ggml.ggml_backend_dev_init.restype, ggml.ggml_backend_dev_init.argtypes = handle, [handle, ctypes.c_char_p]
    ggml.ggml_backend_free.restype, ggml.ggml_backend_free.argtypes = None, [handle]
    return ggml


def far_ends_of(options: EngineOptions) -> FarEnds | None:
    """Connected, where the launch has any. Raises EngineError."""
    if not options.far_ends:
        return None
    return FarEnds(options.far_ends, options.tensor_split, options.far_end_deadline)


def _shares(split: Sequence[float], devices: int) -> Any:
    if not split:
        return None
    if len(split) > devices:
        raise EngineError(f"tensor_split has {len(split)} shares for {devices} devices; give one for each")
    return (ctypes.c_float * max(lib.llama_max_devices(), devices))(*split)


def _connections() -> list[Any]:
    process = psutil.Process()
    ask = getattr(process, "net_connections", None) or process.connections
    return [one for one in ask(kind="tcp") if one.raddr and one.status == psutil.CONN_ESTABLISHED]


def _address(endpoint: str) -> tuple[str, int]:
    """IPv4, as the library would look it up whenever it connects."""
    host, _, port = endpoint.rpartition(":")
    try:
        found = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_STREAM)[0][4]
    except OSError as error:
        raise EngineError(f"the far end {endpoint} is not known here: {error}; write its IPv4 address") from error
    return str(found[0]), int(found[1])


def _end_process(why: str) -> None:
    log.critical("%s", why)
    logging.shutdown()
    os._exit(1)
