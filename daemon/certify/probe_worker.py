"""The other end of `probe_process`: `python -m pilotfish.daemon.certify.probe_worker` serves one probe over its pipes.

The first line on stdin says what to load; every further line is one call, answered by one line on stdout, after which
raw bytes may come. The process ends when its stdin does, so it never outlives the certifier.
"""

from __future__ import annotations

import json
import os
import sys
from typing import IO, Any

from pilotfish.daemon.certify.inspection_wire import parts_to_json, trace_to_json
from pilotfish.daemon.certify.probe_wire import BROKEN, PAYLOAD, options_from_json, pin_from_json, setting_from_json
from pilotfish.daemon.config import files
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import BrokenModel, EngineError, PilotfishError
from pilotfish.hooks.protocols import (
    CertifiableVerifier,
    InspectsForwards,
    LooksDeeper,
    Probe,
    ReadsLogits,
    ReadsPromptsApart,
    RestoresStates,
    StepsTogether,
    TellsEdges,
)


def main() -> int:
    """Serve until stdin ends; returns the exit code."""
    # The pipe is kept apart from stdout, which libraries and plugins may print to.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        probe = _open(json.loads(sys.stdin.readline()))
    except PilotfishError as error:
        _answer(answers, _error(error))
        return 1
    _answer(answers, _about(probe))
    try:
        for line in sys.stdin:
            _answer(answers, *_call(probe, json.loads(line)))
    finally:
        probe.close()
    return 0


def _open(job: dict[str, Any]) -> Probe:
    setting = setting_from_json(job["setting"])
    verifier = Registry.load(files.load()).verifier(setting.engine)
    if not isinstance(verifier, CertifiableVerifier):
        raise EngineError(f"the verifier {setting.engine!r} offers no probe, so its models cannot be certified")
    options = options_from_json(job["options"])
    probe = verifier.probe(pin_from_json(job["pin"]), setting, int(job["max_width"]), options)
    if job.get("deep"):
        _look_deeper(probe)
    return probe


def _look_deeper(probe: Probe) -> None:
    try:
        if not isinstance(probe, LooksDeeper):
            raise EngineError(f"the verifier {probe.engine.name!r} cannot say more than its rows")
        probe.look_deeper()
    except BaseException:
        probe.close()
        raise


def _about(probe: Probe) -> dict[str, Any]:
    engine = probe.engine
    return {
        "engine": [engine.name, engine.version, engine.fingerprint],
        "n_ctx": probe.n_ctx,
        "n_vocab": probe.n_vocab,
        "obstacle": probe.obstacle,
        "edges": list(probe.edges) if isinstance(probe, TellsEdges) else [],
        "experts": isinstance(probe, TellsEdges) and probe.experts,
        "prompts_apart": isinstance(probe, ReadsPromptsApart) and probe.prompts_apart,
        "going_back": probe.going_back if isinstance(probe, RestoresStates) else None,
    }


def _call(probe: Probe, call: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    try:
        match call["op"]:
            case "rows":
                digests = probe.rows(call["tokens"], call["width"])
                return {"rows": [digest.hex() for digest in digests], "seconds": probe.seconds}, b""
            case "logits":
                rows = _logits(probe, call["tokens"], call["width"])
                return {"seconds": probe.seconds}, rows
            case "trace":
                return {"trace": trace_to_json(_inspected(probe).trace(call["tokens"], call["width"]))}, b""
            case "cells":
                return {"parts": parts_to_json(_inspected(probe).cells(call["since"]))}, b""
            case "feed":
                probe.feed(call["tokens"])
                return {"seconds": probe.seconds}, b""
            case "together":
                together = probe.together if isinstance(probe, StepsTogether) else _in_turns
                return {"step": together(call["sequences"], exact=call["exact"])}, b""
            case "cut":
                return {"cut": probe.cut(call["size"])}, b""
            case "encode":
                return {"tokens": probe.encode(call["text"])}, b""
            case _:
                probe.clear()
                return {}, b""
    except PilotfishError as error:
        return _error(error), b""


def _in_turns(sequences: int, *, exact: bool) -> None:
    return None


def _logits(probe: Probe, tokens: list[int], width: int) -> bytes:
    if not isinstance(probe, ReadsLogits):
        raise EngineError(f"the verifier {probe.engine.name!r} does not give its rows away")
    return probe.logits(tokens, width)


def _inspected(probe: Probe) -> InspectsForwards:
    if not isinstance(probe, InspectsForwards):
        raise EngineError(f"the verifier {probe.engine.name!r} cannot be looked into while it computes")
    return probe


def _error(error: PilotfishError) -> dict[str, Any]:
    return {"error": str(error), BROKEN: isinstance(error, BrokenModel)}


def _answer(answers: IO[bytes], value: dict[str, Any], payload: bytes = b"") -> None:
    """Write a line and the raw bytes after it."""
    answers.write(json.dumps({**value, PAYLOAD: len(payload)} if payload else value).encode() + b"\n")
    answers.write(payload)
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
