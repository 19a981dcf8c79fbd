"""A loaded model whose settings change while it answers."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from pilotfish.daemon.config.types import Config, Drafters, Speculation
from pilotfish.daemon.core.controller import Eager
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.core.generator import Generator, known_costs
from pilotfish.daemon.drafters.promotions import Promotions, PromotionSubject
from pilotfish.daemon.lab.fakes.fake_engine import FakeEngine, FakeSession, fake_pin
from pilotfish.daemon.lab.fakes.scripted_drafters import ScriptedDrafter
from pilotfish.daemon.registry.plugin_sources import PluginSource
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import Lane, Parity
from tests.fakes.misbehaviour import RAISED, Panic
from tests.fakes.session import registry_with

CONFIG = Config(drafters=Drafters(order=("scripted",)))
OFF = replace(CONFIG, speculation=Speculation(enabled=False))


def drafter_of(token: int = 5) -> ScriptedDrafter:
    return ScriptedDrafter(lambda history, k: [token] * k)


def generator_of(drafter: ScriptedDrafter, config: Config = CONFIG, lane: Lane | None = None) -> Generator:
    engine = FakeEngine()
    engine.lane = lane or engine.lane
    return Generator(engine, fake_pin(), registry_with(drafter), config, controller=Eager)


def ask(generator: Generator, n: int = 6, during=lambda: None):
    ids: list[int] = []

    def emit(output_tokens):
        during()
        ids.extend(output_token.token for output_token in output_tokens)

    outcome = generator.generate(GenerationRequest((3, 4), n_predict=n), emit, lambda: False)
    return ids, outcome


def test_a_change_takes_effect_with_the_next_request_and_changes_no_token():
    generator = generator_of(drafter_of())
    before = ask(generator)
    during = ask(generator, during=lambda: generator.reconfigure(OFF))
    after = ask(generator)
    assert before[1].speculated
    assert during[1].speculated
    assert not after[1].speculated
    assert before[0] == during[0] == after[0]


def test_new_plugins_serve_the_next_request_and_the_old_ones_the_open_session():
    first, second = drafter_of(), drafter_of()
    generator = generator_of(first)
    ask(generator, during=lambda: generator.reconfigure(CONFIG, registry_with(second)))
    assert (len(first.sessions), len(second.sessions)) == (1, 0)
    assert first.sessions[0].closed == 1
    ask(generator)
    assert (len(first.sessions), len(second.sessions)) == (1, 1)


def test_without_new_plugins_the_old_ones_stay():
    drafter = drafter_of()
    generator = generator_of(drafter, OFF)
    ask(generator)
    assert not drafter.sessions
    generator.reconfigure(CONFIG)
    ask(generator)
    assert len(drafter.sessions) == 1


def test_limits_are_the_configs():
    made: list[dict] = []

    def controller(costs, **limits):
        made.append(limits)
        return Eager(costs, **limits)

    config = replace(CONFIG, speculation=Speculation(max_loss=0.5, max_width=3))
    generator = Generator(FakeEngine(), fake_pin(), registry_with(drafter_of()), config, controller=controller)
    ask(generator)
    assert made == [{"max_width": 3, "max_loss": 0.5}]


@pytest.mark.parametrize(
    ("lane", "wanted", "speculates"),
    [
        ("stock", "stock", True),
        ("stock", "lane", True),
        ("lane", "lane", True),
        ("lane", "stock", False),
        ("none", "lane", False),
        ("none", "none", True),
    ],
)
def test_a_lane_that_promises_less_than_the_config_asks_for_is_not_used(lane, wanted, speculates):
    config = replace(CONFIG, speculation=Speculation(parity=Parity(wanted)))
    generator = generator_of(drafter_of(), config, Lane("some", (1, 2, 3, 4), parity=Parity(lane)))
    assert generator.standing.state == ("active" if speculates else "plain")
    assert ask(generator)[1].speculated is speculates
    assert speculates or f"parity '{lane}', the config asks for '{wanted}'" in generator.standing.reason


def test_the_standing_says_why_not():
    generator = generator_of(drafter_of(), lane=Lane("narrow", (1,), reason="every width differs"))
    assert (generator.standing.state, generator.standing.reason) == ("plain", "every width differs")
    generator.reconfigure(OFF)
    assert (generator.standing.state, generator.standing.reason) == ("off", "switched off in the config")


def test_drafts_that_do_not_pay_are_parked_until_something_changes():
    generator = generator_of(ScriptedDrafter(lambda history, k: [31 - history[-1]] * k))
    ask(generator, 40)
    assert generator.standing.state == "parked"
    assert "did not pay" in generator.standing.reason
    generator.reconfigure(CONFIG)
    assert generator.standing.state == "active"


def test_totals_add_up():
    generator = generator_of(drafter_of())
    reports = [ask(generator, n)[1].report for n in (6, 9)]
    totals = generator.totals
    assert (totals.requests, totals.committed) == (2, sum(report.committed for report in reports))
    assert totals.drafted == sum(report.drafted for report in reports) > 0
    assert totals.acceptance == totals.accepted / totals.drafted
    assert type(totals).from_json(totals.to_json()) == totals
    measures = generator.measures
    assert (measures.answers, measures.answered, measures.accepted) == (2, totals.committed, totals.accepted)
    assert measures.saved - measures.lost == pytest.approx(totals.saved_seconds)
    assert generator.answering == 0


@pytest.mark.parametrize("error", RAISED)
@pytest.mark.parametrize("hook", ["pilotfish_session_opened", "pilotfish_session_closed"])
def test_whatever_an_observer_raises_the_drafters_are_let_go(hook, error):
    class Observer:
        pass

    def broken(**arguments):
        raise error

    setattr(Observer, hook, hookimpl(lambda self, session: broken()))
    drafter = drafter_of()
    generator = generator_of(drafter)
    generator.registry.add(PluginSource("observer", "folder", "there", Observer))
    with contextlib.suppress(BaseException):
        ask(generator)
    assert drafter.sessions[0].closed == 1


@pytest.mark.parametrize("error", [RuntimeError("it broke"), SystemExit(3), Panic("called unwrap on a None value")])
@pytest.mark.parametrize("asked", ["can_shift", "slot_id"])
def test_a_session_that_breaks_as_its_request_begins_is_closed_and_the_next_request_is_answered(asked, error):
    class Broken(FakeSession):
        def __getattribute__(self, name):
            if name == asked and not self._closed:
                raise error
            return super().__getattribute__(name)

    drafter = drafter_of()
    generator = generator_of(drafter)
    opened = generator.engine.open

    def open_(prompt, sampling, **options):
        session = opened(prompt, sampling, **options)
        session.__class__ = Broken
        return session

    generator.engine.open = open_
    with pytest.raises(type(error)):
        ask(generator)
    generator.engine.open = opened
    assert drafter.sessions[0].closed == 1
    assert not generator.live.running
    assert generator.answering == 0
    assert ask(generator)[0] == ask(generator_of(drafter_of()))[0]


def test_what_a_drafter_does_wrong_is_in_the_description():
    drafter = ScriptedDrafter(lambda history, k: [5.0])
    generator = generator_of(drafter)
    plain, _ = ask(generator_of(drafter_of(), OFF))
    ids, outcome = ask(generator)
    assert ids == plain
    assert "a float as an id" in outcome.report.dropped["scripted"]
    assert generator.pool.describe()["scripted"]["about"].startswith("3 proposals refused, the last: proposed")


def test_where_promotion_is_required_only_promoted_drafters_draft(tmp_path):
    wanted = replace(CONFIG, speculation=Speculation(require_promotion=True))
    engine, pin, promotions = FakeEngine(), fake_pin(), Promotions(tmp_path)
    drafter = drafter_of()
    made = {"controller": Eager, "promotions": promotions}
    generator = Generator(engine, pin, registry_with(drafter), wanted, **made)
    plain = ask(generator)
    assert not plain[1].speculated
    assert (generator.standing.state, generator.order) == ("plain", ())
    assert "no drafter is promoted" in generator.standing.reason
    assert not generator.standing.by_lane
    promotions.promote(PromotionSubject.of(pin, engine.engine, engine.lane), "scripted", {}, "", [(1, 2)])
    generator.reconfigure(wanted)
    drafted = ask(generator)
    assert drafted[1].speculated
    assert drafted[0] == plain[0]
    assert generator.order == ("scripted",)
    assert generator.standing.state != "plain"


class FarEngine(FakeEngine):
    """Has layers computed on another machine."""

    far_ends = ("a:1",)

    def gone(self):
        return ()

    def when_lost(self, call):
        """Never is."""


def test_what_was_promoted_on_this_machine_does_not_draft_for_a_model_over_far_ends(tmp_path):
    wanted = replace(CONFIG, speculation=Speculation(require_promotion=True))
    engine, pin, promotions = FarEngine(), fake_pin(), Promotions(tmp_path)
    promotions.promote(PromotionSubject.of(pin, engine.engine, engine.lane), "scripted", {}, "", [(1, 2)])
    made = {"controller": Eager, "promotions": promotions}
    assert Generator(engine, pin, registry_with(drafter_of()), wanted, **made).order == ()
    promotions.promote(PromotionSubject.of(pin, engine.engine, engine.lane, ("a:1",)), "scripted", {}, "", [(1, 2)])
    assert Generator(engine, pin, registry_with(drafter_of()), wanted, **made).order == ("scripted",)


def test_where_promotion_is_required_and_nobody_knows_of_any_nothing_drafts():
    wanted = replace(CONFIG, speculation=Speculation(require_promotion=True))
    generator = Generator(FakeEngine(), fake_pin(), registry_with(drafter_of()), wanted, controller=Eager)
    assert not ask(generator)[1].speculated
    assert "no drafter is promoted" in generator.standing.reason


def test_what_an_engine_timed_as_it_loaded_is_known_before_the_first_answer():
    engine = FakeEngine(widths=(1, 2, 4))
    engine.costs = ((1, 0, 0.06), (4, 0, 0.09))
    costs = known_costs(engine, certified=[(1, 64, 0.02), (2, 64, 0.05), (1, 1000, 0.02), (4, 1000, 0.08)])
    costs.observe_forward(1, 10, 1, 0.1)
    assert costs.cost(4, 10) == pytest.approx(0.15)
    assert costs.cost(2, 10) == pytest.approx(0.25)  # only the certificate knows it
    costs.observe_forward(1, 1000, 1, 0.1)
    assert costs.cost(4, 1000) == pytest.approx(0.4)  # the certificate looked there


def test_an_engine_that_timed_nothing_has_everything_to_be_learned():
    costs = known_costs(FakeEngine())
    costs.observe_forward(1, 10, 1, 0.1)
    assert costs.cost(4, 10) is None
