"""Requests under a controller, on a clock that only moves when a forward is run."""

from __future__ import annotations

from pilotfish.daemon.core.controller import Controller
from pilotfish.daemon.core.costs import CostModel, Round
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine
from pilotfish.daemon.lab.fakes.scripted_drafters import ScriptedDrafter
from pilotfish.hooks.types import EMPTY, Proposal, SamplingParams
from tests.fakes.session import Answer, answer

PROMPT = (5, 9, 3, 7)
PLAIN = 0.010  # seconds
CHEAP = {width: PLAIN * (1 + 0.2 * (width - 1)) for width in range(1, 17)}
DEAR = {1: PLAIN, **dict.fromkeys(range(2, 17), 4 * PLAIN)}


def request(n: int) -> GenerationRequest:
    return GenerationRequest(PROMPT, SamplingParams(temperature=0), n_predict=n)


def run(costs: dict[int, float], drafter: ScriptedDrafter | None, n: int, model: CostModel | None = None):
    """The answer, the seconds it took, and the engine."""
    clock = FakeClock()
    engine = FakeEngine(n_ctx=8192, eog=frozenset(), on_forward=lambda width: clock.advance(costs[width]))
    model = model or CostModel(engine.lane.widths)
    controller = Controller(model, max_width=16)
    result = answer(engine, request(n), [drafter] if drafter else [], controller=controller, clock=clock)
    return result, clock.now, engine


def plain(n: int) -> Answer:
    return run(CHEAP, None, n)[0]


def perfect(n: int, most: int = 15) -> ScriptedDrafter:
    ids = plain(n).ids
    return ScriptedDrafter(lambda history, k: ids[len(history) - len(PROMPT) :][: min(k, most)])


def controller_knowing(draft: float | None, acceptance: float, *, gain: float = 1.0) -> Controller:
    """One that timed plain steps and wide forwards, and knows a drafter `far`."""
    model = CostModel(tuple(range(1, 17)))
    for width in range(1, 17):
        model.observe_round(Round(10, width, "", EMPTY, 0, 1, 0.0, CHEAP[width], CHEAP[width]))
    if draft is not None:
        model.drafts.observe("far", 15, draft)
    said = Proposal((1,) * 15, (0.9,) * 15)
    for _ in range(40):
        model.acceptance.observe("far", said, 15 if acceptance == 1 else 0, 15)
    controller = Controller(model, max_width=16)
    for _ in range(3):
        controller.observe_round(Round(10, 1, "", EMPTY, 0, 1, 0.0, PLAIN, PLAIN))
    controller.account.gain = model.gain = gain
    return controller
