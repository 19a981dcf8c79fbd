"""Recorded answers decoded once more, by our own coordinator and controller, on a clock that only forwards move.

What a drafter or a change of the controller is worth, without a model and without a quiet machine: a forward takes what
it is said to cost, everything else takes no time. A file of recordings is a JSON list of `{"name", "kind", "mode",
"prompt", "ids"}`, both of them token ids. Run as `python -m pilotfish.daemon.lab.recorded_answers FILE`.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.core.controller import Controller
from pilotfish.daemon.core.coordinator import Coordinator, State
from pilotfish.daemon.core.costs import CostModel
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.core.target_session import open_target
from pilotfish.daemon.drafters.pool import DrafterPool
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine, fake_pin
from pilotfish.daemon.lab.fakes.fake_vocabulary import FakeVocabulary
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.types import SamplingParams

STEP = 0.008  # seconds of a plain step; any number would do
N_VOCAB = 1 << 20  # of any model
# Plain steps by width, measured on two cores with AVX2: libllama Q4_0, ik Q4_K_M, and a 1B shape in F16.
CURVES: Mapping[str, Mapping[int, float]] = {
    "llama": {1: 1, 2: 1.56, 3: 2.26, 4: 2.01, 5: 2.69, 6: 2.82, 7: 3.3, 8: 3.25, 12: 4.76, 16: 5.65},
    "ik": {1: 1, 2: 1.25, 4: 1.7, 8: 2.7, 16: 5.1},
    "f16": {1: 1, 2: 1.12, 4: 1.35, 8: 1.74, 16: 2.7},
}


@dataclass(frozen=True, slots=True)
class Recorded:
    """An answer as a model gave it to a prompt."""

    name: str
    kind: str
    mode: str
    prompt: tuple[int, ...]
    ids: tuple[int, ...]


def read(path: Path) -> list[Recorded]:
    """The recordings of a file. Raises OSError, ValueError, KeyError or TypeError."""
    return [
        Recorded(one["name"], one["kind"], one["mode"], tuple(one["prompt"]), tuple(one["ids"]))
        for one in json.loads(path.read_text(encoding="utf-8"))
    ]


def every_width(steps: Mapping[int, float]) -> dict[int, float]:
    """Plain steps for all widths up to the widest known; those between by line."""
    known = sorted(steps)
    found = dict(steps)
    for low, high in itertools.pairwise(known):
        for width in range(low + 1, high):
            found[width] = steps[low] + (steps[high] - steps[low]) * (width - low) / (high - low)
    return dict(sorted(found.items()))


class RecordedModel:
    """One loaded model's requests, one after the other, so that what one teaches the next one knows.

    `steps` are plain steps by width; with `certified` they are known from the start.
    """

    def __init__(self, steps: Mapping[int, float], *, drafters: Sequence[str] = ("suffix",), certified: bool = True):
        self._steps = every_width(steps)
        self._costs = CostModel(tuple(self._steps))
        if certified:
            self._costs.seed((width, 64, cost * STEP) for width, cost in self._steps.items())
        self._registry = Registry.load(Config())
        pin = fake_pin(N_VOCAB)
        self._pool = DrafterPool(pin, FakeVocabulary(pin.tokenizer, [b"?"]), N_VOCAB)
        self._pool.use(self._registry, drafters)

    def steps(self, answer: Recorded) -> float:
        """Plain steps that decoding `answer` took. Raises RuntimeError if other ids came out."""
        clock = FakeClock()
        engine: Any = FakeEngine(
            n_vocab=N_VOCAB,
            n_ctx=len(answer.prompt) + len(answer.ids) + len(self._steps),
            eog=frozenset(),
            widths=tuple(self._steps),
            script=answer.ids,
            on_forward=lambda width: clock.advance(STEP * self._steps[width]),
        )
        request = GenerationRequest(answer.prompt, SamplingParams(temperature=0), n_predict=len(answer.ids))
        guards = self._pool.guards(self._registry, request.prompt, deadline=60.0)
        controller = Controller(self._costs, max_width=max(self._steps))
        session = open_target(engine, request)
        coordinator = Coordinator(engine, session, request, guards=guards, controller=controller, clock=clock)
        while coordinator.reading:
            coordinator.turn()
        began, ids = clock.now, list[int]()
        while coordinator.state is not State.DONE:
            ids += [output_token.token for output_token in coordinator.turn()]
        session.close()
        for guard in guards:
            guard.close()
        if tuple(ids) != answer.ids:
            raise RuntimeError(f"{answer.name}, {answer.mode}: other ids came out than were recorded")
        return (clock.now - began) / STEP


def gains(answers: Sequence[Recorded], steps: Mapping[int, float], *, certified: bool = True) -> Iterator[str]:
    """A line for each mode and kind: plain time over time, in all and for each answer."""
    for mode in dict.fromkeys(answer.mode for answer in answers):
        replays = RecordedModel(steps, certified=certified)
        took = {answer: replays.steps(answer) for answer in answers if answer.mode == mode}
        for kind in dict.fromkeys(answer.kind for answer in took):
            group = [answer for answer in took if answer.kind == kind]
            total = sum(len(answer.ids) for answer in group) / sum(took[answer] for answer in group)
            each = "  ".join(f"{answer.name} {len(answer.ids) / took[answer]:.2f}" for answer in group)
            yield f"{mode} {kind} {total:.3f}  {each}"


def main() -> None:
    """Every curve on the file that the command line names."""
    answers = read(Path(sys.argv[1]))
    for name, steps in CURVES.items():
        for line in gains(answers, steps):
            sys.stdout.write(f"{name} {line}\n")


if __name__ == "__main__":
    main()
