"""Prompts after which a comparison is made deep in the context: natural text, then the workload's own task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle

from pilotfish.daemon.lab.workloads import Workload


def after_text(workload: Workload, text: str) -> Workload:
    """The same task with `text` in front of it; the same one where there is no text."""
    return replace(workload, prompt=f"{text}\n\n{workload.prompt}") if text else workload


def natural_text(workloads: Sequence[Workload], tokens: int, count: Callable[[str], int]) -> str:
    """At least `tokens` tokens, by `count`: the workloads' prompts in turn, the whole of each. "" for none."""
    text, parts = "", list[str]()
    prompts = cycle([workload.prompt for workload in workloads if workload.prompt])
    while count(text) < tokens:
        parts.append(next(prompts))
        text = "\n\n".join(parts)
    return text
