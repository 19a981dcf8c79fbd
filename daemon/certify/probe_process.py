"""A probe in a process of its own, because an engine reads its environment only once.

The process is killed when the budget is spent, whatever it is doing. It is none of `processes.threaded_child`'s: its
pipes carry calls and answers, with which it ends, its output is not kept, and it stays in the session of the certifier,
which is killed as a whole (`idle_certifier`).
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from pilotfish.daemon.certify.inspection_wire import parts_from_json, trace_from_json
from pilotfish.daemon.certify.probe_driver import Deadline, OutOfTime
from pilotfish.daemon.certify.probe_wire import BROKEN, PAYLOAD, options_to_json, pin_to_json, setting_to_json
from pilotfish.hooks.errors import BrokenModel, EngineError
from pilotfish.hooks.inspection import CellsPart, Trace
from pilotfish.hooks.types import EngineOptions, EnginePin, EngineSetting, JointStep, TargetPin

Answer = tuple[dict[str, Any], bytes]  # and the raw bytes that came with it
GRACE = 2.0  # seconds past the deadline before a forward in progress is given up
_WORKER = "pilotfish.daemon.certify.probe_worker"


class RemoteProbe:
    """A `Probe` of the verifier that `setting` names; its calls raise OutOfTime, too, once `deadline` has passed."""

    def __init__(
        self,
        pin: TargetPin,
        setting: EngineSetting,
        max_width: int,
        options: EngineOptions,
        deadline: Deadline,
        *,
        deep: bool = False,
    ) -> None:
        """`deep`: its digests are of all that was computed. Raises EngineError, BrokenModel or OutOfTime."""
        self._name = pin.name
        self._deadline = deadline
        self._process = subprocess.Popen(
            [sys.executable, "-m", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **dict(setting.environment)},
        )
        self._answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()  # None: the process ended
        threading.Thread(target=self._read, name="probe", daemon=True).start()
        self.seconds = 0.0
        job = {
            "pin": pin_to_json(pin),
            "setting": setting_to_json(setting),
            "max_width": max_width,
            "options": options_to_json(options),
            "deep": deep,
        }
        try:
            about, _ = self._ask(job)
        except BaseException:
            self.close()
            raise
        self.engine = EnginePin(*about["engine"])
        self.n_ctx: int = about["n_ctx"]
        self.n_vocab: int = about["n_vocab"]
        self.obstacle: str = about["obstacle"]
        self.edges: tuple[int, ...] = tuple(about["edges"])
        self.experts: bool = about["experts"]
        self.prompts_apart: bool = about["prompts_apart"]
        self.going_back: float | None = about["going_back"]

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without BOS."""
        tokens: list[int] = self._ask({"op": "encode", "text": text})[0]["tokens"]
        return tokens

    def feed(self, tokens: Sequence[int]) -> None:
        """Forward `tokens` as one prompt block."""
        self.seconds = self._ask({"op": "feed", "tokens": list(tokens)})[0]["seconds"]

    def rows(self, tokens: Sequence[int], width: int) -> list[bytes]:
        """One forward; the digests of the tokens' rows."""
        answer, _ = self._ask({"op": "rows", "tokens": list(tokens), "width": width})
        self.seconds = answer["seconds"]
        return [bytes.fromhex(digest) for digest in answer["rows"]]

    def logits(self, tokens: Sequence[int], width: int) -> bytes:
        """One forward; the tokens' rows, float32. Raises EngineError where the verifier's probe cannot give them."""
        answer, rows = self._ask({"op": "logits", "tokens": list(tokens), "width": width})
        self.seconds = answer["seconds"]
        return rows

    def trace(self, tokens: Sequence[int], width: int) -> Trace:
        """One forward, looked into. Raises EngineError where the verifier's probe cannot do that."""
        return trace_from_json(self._ask({"op": "trace", "tokens": list(tokens), "width": width})[0]["trace"])

    def cells(self, since: int) -> tuple[CellsPart, ...]:
        """What the cells hold. Raises EngineError as `trace`."""
        return parts_from_json(self._ask({"op": "cells", "since": since})[0]["parts"])

    def together(self, sequences: int, *, exact: bool) -> JointStep | None:
        """Plain steps of several requests in one forward; None where the verifier's probe has no such thing."""
        told, _ = self._ask({"op": "together", "sequences": sequences, "exact": exact})
        return JointStep(*told["step"]) if told["step"] else None

    def cut(self, size: int) -> bool:
        """Keep the first `size` cells."""
        return bool(self._ask({"op": "cut", "size": size})[0]["cut"])

    def clear(self) -> None:
        """Forget every cell."""
        self._ask({"op": "clear"})

    def close(self) -> None:
        """End the process; a second call does nothing."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()

    def _ask(self, call: dict[str, Any]) -> Answer:
        """What the process says. Raises EngineError, BrokenModel or OutOfTime."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(call).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._answers.get(timeout=max(0.0, self._deadline.left) + GRACE)
        except queue.Empty:
            self.close()
            raise OutOfTime from None
        except OSError:
            answer = None
        if answer is None:
            raise EngineError(f"{self._name}: the engine's process ended")
        told, _ = answer
        if "error" in told:
            raise (BrokenModel if told.get(BROKEN) else EngineError)(told["error"])
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError):  # closed while reading
            while line := self._process.stdout.readline():
                told = json.loads(line)
                self._answers.put((told, self._process.stdout.read(told.get(PAYLOAD, 0))))
        self._answers.put(None)
