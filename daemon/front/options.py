"""Ollama's `options`: their defaults, their types, and what they become in a runner's request and launch."""

from __future__ import annotations

import dataclasses
import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pilotfish.daemon.http.json_text import SHOWN, is_finite, shown
from pilotfish.hooks.errors import RequestError

log = logging.getLogger("pilotfish.front")

MAX_WARNINGS = 8  # for one request
LEAST_CONTEXT = 4  # tokens, as in Ollama, whatever a request says
LONGEST_ANSWER = 10  # contexts, as in Ollama: a full one may forget, and some models never end by themselves


@dataclass(frozen=True, slots=True)
class Options:
    """Every option of Ollama, at Ollama's defaults, and two of our own (`speculate`, `return_tokens`).

    A seed of -1 is random; `num_predict` below 0 goes on until the model ends, at most for ten contexts.
    """

    num_keep: int = 4
    seed: int = -1
    num_predict: int = -1
    top_k: int = 40
    top_p: float = 0.9
    min_p: float = 0.0
    typical_p: float = 1.0
    repeat_last_n: int = 64
    temperature: float = 0.8
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    stop: tuple[str, ...] = ()
    num_ctx: int = 4096
    num_batch: int | None = None
    num_gpu: int = -1
    main_gpu: int | None = None
    use_mmap: bool | None = None
    num_thread: int = 0
    draft_num_predict: int | None = None
    speculate: bool = True
    return_tokens: bool = False


_INTEGERS = frozenset(
    {
        "num_keep",
        "seed",
        "num_predict",
        "top_k",
        "repeat_last_n",
        "num_ctx",
        "num_batch",
        "num_gpu",
        "main_gpu",
        "num_thread",
        "draft_num_predict",
    }
)
# What a runner can be started with: otherwise it would not start. What may stand in a request, it says itself.
_BOUNDS = {
    "num_ctx": (-(2**31), 2**31 - 1),
    "num_batch": (-(2**31), 2**20),
    "num_gpu": (-(2**31), 2**31 - 1),
    "main_gpu": (-(2**31), 2**31 - 1),
    "num_thread": (-(2**31), 4096),
}
_BOOLEANS = frozenset({"use_mmap", "speculate", "return_tokens"})
_KNOWN = tuple(field.name for field in dataclasses.fields(Options))


def merge(base: Options, overrides: Mapping[str, Any]) -> Options:
    """`base` with `overrides`; null leaves a value as it is, an unknown name is logged and ignored.

    Raises RequestError in Ollama's words when a value has the wrong type.
    """
    _warn_of([name for name in overrides if name not in _KNOWN])
    given = ((name, overrides[name]) for name in _KNOWN if overrides.get(name) is not None)
    return dataclasses.replace(base, **{name: _typed(name, value) for name, value in given})


def _warn_of(unknown: list[str]) -> None:
    """A line for each of the first few: looking for the nearest name takes a while, and logs are not to be filled."""
    for name in unknown[:MAX_WARNINGS]:
        near = difflib.get_close_matches(name, _KNOWN, n=1) if len(name) <= SHOWN else []
        log.warning("invalid option %s is ignored%s", shown(name), f"; did you mean {near[0]!r}?" if near else "")
    if len(unknown) > MAX_WARNINGS:
        log.warning("%d more invalid options are ignored", len(unknown) - MAX_WARNINGS)


def _typed(name: str, value: Any) -> Any:
    if name == "stop":
        return _strings(name, value)
    if name in _BOOLEANS:
        if not isinstance(value, bool):
            raise RequestError(f'option "{name}" must be of type boolean')
        return value
    kind = "integer" if name in _INTEGERS else "float32"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f'option "{name}" must be of type {kind}')
    if not is_finite(value):
        raise RequestError(f'option "{name}" must be a finite number')
    return _whole(name, int(value)) if kind == "integer" else float(value)


def _whole(name: str, value: int) -> int:
    low, high = _BOUNDS.get(name, (-(2**63), 2**63 - 1))
    if not low <= value <= high:
        raise RequestError(f'option "{name}" must be between {low} and {high}, got {shown(value)}')
    return value


def _strings(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise RequestError(f'option "{name}" must be of type array')
    if not all(isinstance(item, str) for item in value):
        raise RequestError(f'option "{name}" must be of an array of strings')
    return tuple(value)


def completion_fields(options: Options, *, unsaid_if_zero: bool = True) -> dict[str, Any]:
    """The sampling part of a runner's `/completion` body.

    Where Ollama renders the prompt itself it leaves out a `num_predict` or a `typical_p` of 0 (`unsaid_if_zero`), and
    llama-server's own defaults hold: no limit, and no cut. In chats that llama-server renders a 0 is a 0.
    """
    longest = LONGEST_ANSWER * options.num_ctx
    budget = options.num_predict if 0 <= options.num_predict <= longest else longest
    return {
        "n_predict": -1 if unsaid_if_zero and budget == 0 else budget,
        "n_keep": options.num_keep,
        "temperature": options.temperature,
        "top_k": options.top_k,
        "top_p": options.top_p,
        "min_p": options.min_p,
        "typical_p": 1.0 if unsaid_if_zero and options.typical_p == 0 else options.typical_p,
        "repeat_last_n": options.repeat_last_n,
        "repeat_penalty": options.repeat_penalty,
        "presence_penalty": options.presence_penalty,
        "frequency_penalty": options.frequency_penalty,
        "seed": options.seed,
        "stop": list(options.stop),
        "speculate": options.speculate,
    }


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """The options that hold for a runner's whole life: a request with others needs another runner."""

    num_ctx: int  # tokens for each request
    slots: int = 1  # requests that are answered at a time
    num_batch: int | None = None
    num_gpu: int = -1
    main_gpu: int | None = None
    use_mmap: bool | None = None
    num_thread: int = 0

    def fits(self, asked: RunnerOptions) -> bool:
        """Whether a runner that was started with these does for a request with `asked`: as in Ollama, who leaves the
        layers on a GPU to the engine takes them as they are."""
        mine = replace(self, num_gpu=-1) if asked.num_gpu < 0 else self
        return mine == asked

    def arguments(self) -> list[str]:
        """As Ollama hands them to llama-server."""
        arguments = ["-c", str(self.num_ctx * self.slots), "-np", str(self.slots)]
        if self.num_batch is not None:
            arguments += ["-b", str(self.num_batch), "-ub", str(self.num_batch)]
        if self.num_gpu >= 0:
            arguments += ["-ngl", str(self.num_gpu)]
        if self.main_gpu is not None:
            arguments += ["--split-mode", "none", "--main-gpu", str(self.main_gpu)]
        if self.use_mmap is False:
            arguments += ["--load-mode", "none"]
        if self.num_thread > 0:
            arguments += ["-t", str(self.num_thread)]
        return arguments


def runner_options(options: Options, train_context: int, slots: int = 1) -> RunnerOptions:
    """How to start a runner for these options. `train_context` tokens (0: unknown) is the most a model can use."""
    asked = max(options.num_ctx, LEAST_CONTEXT)
    num_ctx = min(asked, train_context) if train_context > 0 else asked
    if num_ctx < options.num_ctx:
        log.warning("num_ctx %d is more than the model was trained for; using %d", options.num_ctx, num_ctx)
    return RunnerOptions(
        num_ctx,
        slots,
        num_batch=options.num_batch if options.num_batch and options.num_batch > 0 else None,
        num_gpu=max(options.num_gpu, -1),
        main_gpu=options.main_gpu,
        use_mmap=options.use_mmap,
        num_thread=max(options.num_thread, 0),
    )
