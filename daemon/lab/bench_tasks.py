"""What the benchmark asks: every workload, and the same once more with a small change, as an agent does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pilotfish.daemon.lab.workloads import Mode, Workload

FIRST, SECOND = "first", "second"
PASSES = (FIRST, SECOND)

# What Ollama sends with a request that sets nothing, but for what the mode decides; `cache_prompt` is its habit, too.
OPTIONS: Mapping[str, Any] = {"top_k": 40, "top_p": 0.9, "min_p": 0.0, "repeat_penalty": 1.0, "repeat_last_n": 64}

_FUNCTION = re.compile(r"\bdef (\w+)\(")
_QUOTED = re.compile(r"`(\w+)`")
_NUMBER = re.compile(r"\b[1-9]\d\b")


@dataclass(frozen=True, slots=True)
class Task:
    """One request: a workload in one pass, its prompt as the model reads it, and how to sample."""

    workload: Workload
    again: str  # a name in PASSES
    mode: Mode
    prompt: str
    ids: tuple[int, ...]
    n_predict: int

    @property
    def key(self) -> tuple[str, str, str]:
        """(mode, pass, workload): what tells tasks of one run apart."""
        return self.mode.name, self.again, self.workload.name

    @property
    def options(self) -> dict[str, Any]:
        """Sampling, under the names that Ollama and llama-server share."""
        return {**OPTIONS, **self.mode.options}


def passes(workloads: Sequence[Workload]) -> dict[str, list[Workload]]:
    """The workloads of both passes, in the same order and under the same names."""
    return {FIRST: list(workloads), SECOND: [changed(workload) for workload in workloads]}


def changed(workload: Workload) -> Workload:
    """The same task with a small change that depends on nothing but its text.

    Code gets a function renamed (one that the instruction does not speak of); else the first number of two digits
    goes up by one; a prompt without either is asked again with an instruction in front.
    """
    prompt = workload.prompt
    spoken_of = set(_QUOTED.findall(prompt))
    function = next((name for name in _FUNCTION.findall(prompt) if name not in spoken_of), None)
    if function:
        prompt = re.sub(rf"\b{function}\b", f"{function}_from_file", prompt)
    elif number := _NUMBER.search(prompt):
        prompt = f"{prompt[: number.start()]}{int(number[0]) + 1}{prompt[number.end() :]}"
    else:
        prompt = f"Please do this once more. {prompt}"
    return replace(workload, prompt=prompt)
