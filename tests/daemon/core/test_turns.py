"""Several requests in one engine, a turn each: whatever the others do, each answer is the one it would be alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.daemon.config.types import Config, Drafters, Speculation
from pilotfish.daemon.core.answering import Answering
from pilotfish.daemon.core.controller import Controller, Eager
from pilotfish.daemon.core.generation import GenerationRequest, OutputToken
from pilotfish.daemon.core.generator import Generator
from pilotfish.daemon.lab.fakes.fake_engine import BLOCK, FakeEngine, fake_pin
from pilotfish.daemon.lab.fakes.scripted_drafters import NoisyDrafter, ScriptedDrafter
from pilotfish.hooks.errors import ContextOverflow, EngineError
from pilotfish.hooks.protocols import Drafter
from pilotfish.hooks.types import Placement, SamplingParams
from tests.fakes.misbehaviour import RAISED
from tests.fakes.session import registry_with

CONFIG = Config(drafters=Drafters(order=("noisy",)))


class Shared:
    """A drafter that any number of sessions can use at a time."""

    name = "noisy"
    placement = Placement.INLINE
    sessions = 64

    def __init__(self, drafter: Drafter) -> None:
        self.open = drafter.open


def generator(
    slots: int, *, wrong: float = 0.3, drafter: Drafter | None = None, eager: bool = True, **engine
) -> Generator:
    """A generator over a fake engine, with one drafter that any number of requests can use."""
    fake = FakeEngine(slots=slots, **engine)
    drafter = drafter or Shared(NoisyDrafter(lambda history: fake.candidates(history, 1)[0], wrong=wrong, n_vocab=32))
    return Generator(fake, fake_pin(), registry_with(drafter), CONFIG, controller=Eager if eager else Controller)


@dataclass
class Client:
    """One request's reader: when it comes and when it leaves, counted in turns."""

    request: GenerationRequest
    comes: int = 0
    leaves: int = 10_000
    tokens: list[OutputToken] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)  # in which something arrived
    answering: Answering | None = None
    gone: bool = False

    @property
    def ids(self) -> list[int]:
        return [token.token for token in self.tokens]

    @property
    def ended(self) -> bool:
        return self.answering is not None and self.answering.ended


def serve(generator: Generator, clients: Sequence[Client]) -> None:
    """Answer all of them, as many at a time as there are slots, in the order in which they come."""
    for turn in range(10_000):
        for client in clients:
            client.gone = client.gone or turn >= client.leaves
        running = [c for c in clients if c.answering is not None and not c.ended]
        for client in [c for c in clients if c.answering is None and c.comes <= turn][: generator.slots - len(running)]:

            def emit(tokens, client=client, turn=turn):
                client.tokens.extend(tokens)

            client.answering = generator.begin(client.request, emit, lambda client=client: client.gone)
            running.append(client)
        before = [len(client.tokens) for client in running]
        generator.turn([client.answering for client in running])
        for client, had in zip(running, before, strict=True):
            if len(client.tokens) > had:
                client.turns.append(turn)
        if all(client.ended for client in clients):
            return
    raise AssertionError("the answers do not end")


def alone(request: GenerationRequest, **engine) -> list[int]:
    client = Client(replace(request, speculate=False))
    serve(generator(1, **engine), [client])
    return client.ids


REQUESTS = st.builds(
    lambda prompt, seed, temperature, n, speculate: GenerationRequest(
        tuple(prompt), SamplingParams(temperature=temperature, seed=seed), n, speculate=speculate
    ),
    st.lists(st.integers(2, 31), min_size=1, max_size=40),
    st.integers(0, 9),
    st.sampled_from([0.0, 0.8]),
    st.integers(0, 30),
    st.booleans(),
)
CLIENTS = st.builds(Client, REQUESTS, comes=st.integers(0, 20), leaves=st.sampled_from([10_000, 3, 8, 20]))


@settings(deadline=None, max_examples=60)
@given(
    clients=st.lists(CLIENTS, min_size=1, max_size=6),
    slots=st.integers(1, 4),
    joins=st.sampled_from([1, 3, 8, 64]),
    eager=st.booleans(),
    wrong=st.floats(0, 1),
    n_ctx=st.sampled_from([512, 50]),
    widths=st.sampled_from([tuple(range(1, 17)), (1, 2, 4, 8), (1,)]),
)
def test_each_answer_is_the_one_that_it_would_be_alone(clients, slots, joins, eager, wrong, n_ctx, widths):
    engine = generator(slots, eager=eager, wrong=wrong, joins=joins, n_ctx=n_ctx, widths=widths)
    serve(engine, clients)
    for client in clients:
        expected = alone(client.request, n_ctx=n_ctx)
        assert client.ids == (expected[: len(client.ids)] if client.gone else expected)
    assert engine.engine.open_sessions == 0


@pytest.mark.parametrize("joins", [1, 8])
def test_noise_that_depends_on_the_width_shows_in_the_ids(joins):
    """The control: outside a lane the same turns do give other ids, so the test above can fail."""
    request = GenerationRequest((5, 9, 3), SamplingParams(temperature=0), 40)
    clients = [Client(request), Client(replace(request, prompt=(7, 7)))]
    serve(generator(2, noise=True, joins=joins), clients)
    assert clients[0].ids != alone(request, noise=True)


def test_nobody_waits_while_others_take_two_turns():
    request = GenerationRequest((5, 9), SamplingParams(temperature=0), 20, speculate=False)
    clients = [Client(replace(request, prompt=(5, i))) for i in range(2, 5)]
    serve(generator(3), clients)
    turns = [client.turns for client in clients]
    assert all(list(range(found[0], found[-1] + 1)) == found for found in turns)
    assert len({found[0] for found in turns}) == 1


def test_a_long_prompt_does_not_stall_an_answer_that_runs():
    short = Client(GenerationRequest((5, 9), SamplingParams(temperature=0), 40, speculate=False))
    long = Client(GenerationRequest((3,) * (20 * BLOCK), SamplingParams(temperature=0), 3), comes=2)
    serve(generator(2, script=(5,) * 100), [short, long])
    assert short.turns == list(range(short.turns[0], short.turns[0] + 40))
    assert long.turns[0] == 2 + 20


def test_a_slot_that_is_asked_for_is_the_one_that_it_gets():
    fake = generator(3)
    seen = []
    for slot in (2, 0, 4):  # 4 is 1 again, as on stock
        answering = fake.begin(GenerationRequest((5, 9), n_predict=1, slot=slot), lambda tokens: None, lambda: False)
        seen.append(answering.slot)
    assert seen == [2, 0, 1]


def test_the_outcome_says_which_slot_it_was():
    outcomes = []
    fake = generator(2)
    for slot in (1, 0):
        outcomes.append(fake.generate(GenerationRequest((5, 9), n_predict=1, slot=slot), lambda t: None, lambda: False))
    assert [outcome.slot for outcome in outcomes] == [1, 0]


@pytest.mark.parametrize("error", RAISED)
def test_what_one_request_meets_is_no_other_ones(error):
    """An engine that fails in one session's forward: that answer ends with the error, the other ones do not notice."""
    requests = [GenerationRequest((5, i), SamplingParams(temperature=0), 20) for i in range(2, 5)]
    fake = generator(3)
    clients = [Client(request) for request in requests]
    opened = fake.engine.open

    def open_(prompt, *arguments, **options):
        session = opened(prompt, *arguments, **options)
        if prompt == requests[1].prompt:
            verify = session.verify

            def broken(proposals):
                if len(session.history) > 8:
                    raise error
                return verify(proposals)

            session.verify = broken
        return session

    fake.engine.open = open_
    serve(fake, clients)
    with pytest.raises(type(error)):
        clients[1].answering.outcome()
    assert [clients[0].ids, clients[2].ids] == [alone(requests[0]), alone(requests[2])]
    assert clients[1].ids == alone(requests[1])[: len(clients[1].ids)]
    assert fake.engine.open_sessions == 0


@pytest.mark.parametrize("error", RAISED)
@pytest.mark.parametrize("what", ["open", "propose", "commit", "close"])
def test_a_drafter_that_raises_in_one_request_costs_that_one_its_drafts(what, error):
    requests = [GenerationRequest((5, i), SamplingParams(temperature=0), 20) for i in range(2, 5)]

    class Raising(ScriptedDrafter):
        def open(self, target, prompt):
            session = super().open(target, prompt)
            if tuple(prompt) == requests[1].prompt:
                if what == "open":
                    raise error
                setattr(session, what, broken)
            return session

    def broken(*arguments):
        raise error

    drafter = Shared(Raising(lambda history, k: [9] * k))
    clients = [Client(request) for request in requests]
    serve(generator(3, drafter=drafter), clients)
    assert [client.ids for client in clients] == [alone(request) for request in requests]


def test_a_drafter_of_one_session_serves_one_request_at_a_time():
    drafter = ScriptedDrafter(lambda history, k: [9] * k, name="noisy")
    fake = generator(2, drafter=drafter)
    requests = [GenerationRequest((5, i), SamplingParams(temperature=0), 5) for i in (2, 3, 4)]
    clients = [Client(requests[0]), Client(requests[1]), Client(requests[2], comes=30)]
    serve(fake, clients)
    assert [list(session.history.tokens[:2]) for session in drafter.sessions] == [[5, 2], [5, 4]]
    assert [client.ids for client in clients] == [alone(request) for request in requests]


def test_a_prompt_that_does_not_fit_is_refused_and_the_others_go_on():
    fake = generator(2, n_ctx=16)
    running = Client(GenerationRequest((5, 9), SamplingParams(temperature=0), 10))
    running.answering = fake.begin(running.request, running.tokens.extend, lambda: False)
    with pytest.raises(ContextOverflow):
        fake.begin(GenerationRequest((3,) * 16), lambda tokens: None, lambda: False)
    while not running.ended:
        fake.turn([running.answering])
    assert running.ids == alone(running.request)


def test_an_answer_that_fills_its_context_ends_and_the_other_one_does_not():
    fake = generator(2, n_ctx=24, script=(5,) * 100)
    requests = [GenerationRequest((5,) * n, SamplingParams(temperature=0), -1, speculate=False) for n in (20, 4)]
    clients = [Client(request) for request in requests]
    serve(fake, clients)
    assert [len(client.ids) for client in clients] == [4, 20]
    assert all(client.answering.outcome().truncated for client in clients)


def test_a_config_that_changes_holds_for_those_that_begin_later():
    fake = generator(2)
    first, second = (Client(GenerationRequest((5, i), SamplingParams(temperature=0), 12)) for i in (2, 3))
    first.answering = fake.begin(first.request, first.tokens.extend, lambda: False)
    fake.reconfigure(replace(CONFIG, speculation=Speculation(enabled=False)))
    second.answering = fake.begin(second.request, second.tokens.extend, lambda: False)
    while not (first.ended and second.ended):
        fake.turn([client.answering for client in (first, second) if not client.ended])
    assert first.answering.outcome().speculated
    assert not second.answering.outcome().speculated
    assert [first.ids, second.ids] == [alone(first.request), alone(second.request)]


def test_a_target_that_cannot_be_opened_leaves_no_seat_taken():
    drafter = ScriptedDrafter(lambda history, k: [9] * k, name="noisy")
    fake = generator(1, drafter=drafter)
    opened, fake.engine.open = fake.engine.open, _refuse
    with pytest.raises(EngineError):
        fake.begin(GenerationRequest((5, 2)), lambda tokens: None, lambda: False)
    fake.engine.open = opened
    client = Client(GenerationRequest((5, 2), SamplingParams(temperature=0), 5))
    serve(fake, [client])
    assert client.answering.outcome().report.drafters == ("noisy",)


def _refuse(*arguments, **options):
    raise EngineError("no memory")
