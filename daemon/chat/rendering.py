"""The handle of the process that renders chat templates: started with the first, replaced when a template ends it."""

from __future__ import annotations

import atexit
import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any, NoReturn

from pilotfish.hooks.errors import EngineError, RequestError, UnsupportedRequest

RENDER_SECONDS = 3.0  # of processor time, so that a busy machine takes nothing away; a long chat takes milliseconds
_COMMAND = (sys.executable, "-P", "-m", "pilotfish.daemon.chat.template_renderer")


class Renderer:
    """Renders one template after the other. Safe to use from many threads, which wait for each other.

    `seconds` is the processor time that one rendering may take.
    """

    def __init__(self, seconds: float = RENDER_SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    def start(self) -> None:
        """Start the process now, so that the first rendering does not wait for it. What fails, fails then."""
        with self._lock, contextlib.suppress(EngineError):
            self._running()

    def render(self, source: str, variables: Mapping[str, Any]) -> str:
        """The text that the template makes of `variables`. Blocks for some seconds at most; never on an event loop.

        Raises RequestError when the template refuses, fails or does not come to an end, UnsupportedRequest when
        `source` is no template, EngineError when something else than the template ended the process.
        """
        request = _line({"source": source, "variables": variables, "seconds": self._seconds})
        with self._lock:
            process = self._running()
            answer = _exchange(process, request)
            if answer is None:
                self._raise_cause(process)
        if "text" in answer:
            return str(answer["text"])
        if answer.get("broken"):
            raise UnsupportedRequest(
                f"the model's chat template cannot be compiled: {answer['error']}; "
                "render the prompt yourself and send it raw"
            )
        raise RequestError(f"the model's chat template {answer['error']}")

    def close(self) -> None:
        """End the process; the next rendering starts another."""
        with self._lock:
            if self._process is not None:
                _end(self._process)
            self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            _end(self._process)
            self._process = None
        if self._process is None:
            try:
                # In a session of its own, Ctrl-C in a terminal does not reach it.
                self._process = subprocess.Popen(
                    _COMMAND,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                raise EngineError(f"the process that renders chat templates cannot be started: {error}") from error
        return self._process

    def _raise_cause(self, process: subprocess.Popen[bytes]) -> NoReturn:
        _end(process)
        if process.returncode == -signal.SIGPROF:
            took = f"it took more than {self._seconds:g} s of processor time for these messages"
            raise RequestError(f"the model's chat template was stopped: {took}")
        raise EngineError(f"the process that renders chat templates ended with code {process.returncode}; try again")


def _line(request: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(request).encode() + b"\n"
    except RecursionError as error:
        raise RequestError("the messages are nested too deeply; send flatter ones") from error


def _exchange(process: subprocess.Popen[bytes], request: bytes) -> dict[str, Any] | None:
    """The answer, or None when the process ended instead."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(request)
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        line = b""
    if line.endswith(b"\n"):
        answer: dict[str, Any] = json.loads(line)
        return answer
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    process.wait()
    process.stdout.close()


RENDERER = Renderer()  # one for the process: templates are rendered seldom, and one at a time
