"""Requests to a fake engine, and drafters' scripts that know what it answers."""

from __future__ import annotations

from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine
from pilotfish.hooks.types import SamplingParams

GREEDY = SamplingParams(temperature=0)
PROMPT = (5, 9, 3, 7)


def request(n: int = 40, *, prompt=PROMPT, sampling=GREEDY, **kwargs) -> GenerationRequest:
    return GenerationRequest(prompt, sampling, n_predict=n, **kwargs)


def truth(engine: FakeEngine):
    return lambda history: engine.candidates(history, 1)[0]


def replay(ids):
    """A script that proposes what a recorded answer says next."""
    return lambda history, k: list(ids)[len(history) - len(PROMPT) :][:k]
