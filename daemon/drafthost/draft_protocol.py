"""The native draft protocol's JSON, the host's side of it: parsed once into types that cannot be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish.hooks.errors import RequestError
from pilotfish.hooks.types import Ack, EngineOptions, Proposal, TargetPin, TokenizerPin, WeightPin

PROTOCOL = 1
ROOT = "/v1/draft"
IDS, BYTES = "ids", "bytes"
MAX_PROPOSAL = 1024  # ids or bytes in one proposal
_MAX_ID = (1 << 31) - 1  # a history holds 32-bit ids


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which target a drafter is to be ready for. `options` holds the context length; the rest is the host's choice."""

    target: TargetPin
    options: EngineOptions


@dataclass(frozen=True, slots=True)
class Opening:
    """The start of a session. `prompt` is in ids or bytes, as `speaks` says."""

    wanted: Wanted
    speaks: str
    prompt: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rollback:
    pass


@dataclass(frozen=True, slots=True)
class Propose:
    k: int


@dataclass(frozen=True, slots=True)
class Close:
    pass


Step = Commit | Rollback | Propose | Close


def parse_wanted(body: Mapping[str, Any]) -> Wanted:
    """The part that `load` and `open` share. Raises RequestError naming the field."""
    theirs = body.get("protocol")
    if theirs != PROTOCOL:
        raise RequestError(f"protocol: {theirs!r} is not spoken here, {PROTOCOL} is; install the same version on both")
    n_ctx = _whole(body.get("n_ctx"), "n_ctx", 1, 1 << 30)
    return Wanted(_target(_table(body.get("target"), "target")), EngineOptions(n_ctx=n_ctx))


def parse_opening(body: Mapping[str, Any]) -> Opening:
    """Raises RequestError naming the field."""
    speaks = body.get("speaks")
    if speaks not in (IDS, BYTES):
        raise RequestError(f"speaks: expected {IDS!r} or {BYTES!r}, got {speaks!r}")
    wanted = parse_wanted(body)
    return Opening(wanted, speaks, _ids(body.get("prompt"), "prompt", below(wanted.target, speaks)))


def parse_steps(body: Mapping[str, Any]) -> tuple[Step, ...]:
    """Raises RequestError naming the step."""
    steps = body.get("steps")
    if not isinstance(steps, list) or not steps:
        raise RequestError("steps: expected a list of steps")
    return tuple(_step(step, f"steps[{i}]") for i, step in enumerate(steps))


def ack_to_json(ack: Ack, proposal: Proposal | None = None) -> dict[str, Any]:
    """A reply: the history acknowledged and, where one was asked for, the proposal."""
    value: dict[str, Any] = {"round": ack.round, "position": ack.position, "digest": ack.digest}
    if proposal is not None:
        value |= {"tokens": list(proposal.tokens), "confidence": [round(sure, 4) for sure in proposal.confidence]}
    return value


def _step(step: object, where: str) -> Step:
    match step:
        case ["commit", tokens]:
            return Commit(_ids(tokens, where, _MAX_ID + 1))
        case ["rollback"]:
            return Rollback()
        case ["propose", k]:
            return Propose(_whole(k, where, 0, MAX_PROPOSAL))
        case ["close"]:
            return Close()
    raise RequestError(f'{where}: expected ["commit", [ids]], ["rollback"], ["propose", k] or ["close"]')


def _target(table: Mapping[str, Any]) -> TargetPin:
    weights = table.get("weights")
    if not isinstance(weights, list):
        raise RequestError("target.weights: expected a list")
    return TargetPin(
        name=_text(table, "name", "target"),
        weights=tuple(_weight(_table(weight, "target.weights")) for weight in weights),
        tokenizer=_tokenizer(_table(table.get("tokenizer"), "target.tokenizer")),
        manifest_digest=_text(table, "manifest_digest", "target") or None,
        format=_text(table, "format", "target"),
        architecture=_text(table, "architecture", "target"),
        quantization=_text(table, "quantization", "target"),
    )


def _weight(table: Mapping[str, Any]) -> WeightPin:
    path = Path(_text(table, "path", "target.weights"))  # empty from another machine
    size = _whole(table.get("size"), "target.weights.size", 0, 1 << 60)
    return WeightPin(_text(table, "digest", "target.weights"), path, size)


def _tokenizer(table: Mapping[str, Any]) -> TokenizerPin:
    where = "target.tokenizer"
    return TokenizerPin(
        fingerprint=_text(table, "fingerprint", where),
        model=_text(table, "model", where),
        n_vocab=_whole(table.get("n_vocab"), f"{where}.n_vocab", 0, _MAX_ID),
        bos=_id_or_none(table.get("bos"), f"{where}.bos"),
        eos=_id_or_none(table.get("eos"), f"{where}.eos"),
        add_bos=table.get("add_bos") is True,
        add_eos=table.get("add_eos") is True,
    )


def below(target: TargetPin, speaks: str) -> int:
    """How many ids, or bytes, there are to speak in."""
    return 256 if speaks == BYTES else target.tokenizer.n_vocab or _MAX_ID + 1


def _table(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise RequestError(f"{where}: expected an object, got {type(value).__name__}")
    return value


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise RequestError(f"{where}.{key}: expected text, got {type(value).__name__}")
    return value or ""


def _whole(value: object, where: str, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise RequestError(f"{where}: expected a whole number from {low} to {high}, got {value!r:.60}")
    return value


def _id_or_none(value: object, where: str) -> int | None:
    return None if value is None else _whole(value, where, 0, _MAX_ID)


def _ids(value: object, where: str, below: int) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(token) is int and 0 <= token < below for token in value):
        raise RequestError(f"{where}: expected a list of ids from 0 to {below - 1}")
    return tuple(value)
