"""`/metrics` of a daemon: what its runners did adds up, only grows, and is told wherever it is mounted."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from random import Random

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pilotfish.daemon.control import daemon_metrics
from pilotfish.daemon.control import ledger as ledgers
from pilotfish.daemon.control.control_client import connected
from pilotfish.daemon.control.daemon_metrics import DaemonMetrics, metrics_over, metrics_routes
from pilotfish.daemon.control.decision_log import Logged
from pilotfish.daemon.control.governing import governing
from pilotfish.daemon.control.governor import Governor
from pilotfish.daemon.control.ledger import MAX_MODELS, MAX_PROCESSES, OTHERS, Ledger
from pilotfish.daemon.control.pace import Pace
from pilotfish.daemon.control.plans import Registration, Report
from pilotfish.daemon.core.measures import Measures
from pilotfish.daemon.core.totals import Standing, Totals
from pilotfish.daemon.front.app import running as front_running
from pilotfish.daemon.front.settings import FrontSettings
from pilotfish.hooks.errors import WorldError
from pilotfish.manifests.store import Store
from tests.daemon.control.governed import running
from tests.waiting import until

MODEL = "smollm2:135m"


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    """Each sample by its name and the values of its labels."""
    found = text_string_to_metric_families(text.decode())
    labels = ("model", "kind", "state", "le", "version")
    every = (sample for family in found for sample in family.samples)
    return {(s.name, *(s.labels[label] for label in labels if label in s.labels)): s.value for s in every}


async def scraped(governor: Governor) -> dict[tuple[str, ...], float]:
    return samples(await DaemonMetrics(governor).scrape())


def registration(model: str = MODEL, pid: int = 7, started: float | None = None) -> Registration:
    return Registration(pid, 4711, model, time.time() + 60 if started is None else started)


def did(**counts: int) -> Report:
    return Report(measures=replace(Measures(), **counts))


class TestSums:
    async def test_runners_of_a_model_add_up_and_leave_their_sums_behind(self):
        governor = Governor()
        one, two = (governor.register(registration(pid=pid)) for pid in (7, 8))
        governor.report(one.id, did(plain=10, accepted=5, rejected=3))
        governor.report(two.id, did(plain=1, accepted=2))
        governor.leave(one)
        found = await scraped(governor)
        kinds = {kind: found["pilotfish_tokens_total", MODEL, kind] for kind in ("plain", "accepted", "rejected")}
        assert kinds == {"plain": 11, "accepted": 7, "rejected": 3}
        governor.leave(two)
        assert await scraped(governor) == found | {("pilotfish_runners", MODEL, "active"): 0}

    async def test_a_model_loaded_again_goes_on_from_where_it_was(self):
        governor = Governor()
        for pid in (7, 8, 9):
            runner = governor.register(registration(pid=pid))
            governor.report(runner.id, did(answers=2))
            governor.leave(runner)
        assert (await scraped(governor))["pilotfish_requests_total", MODEL] == 6

    def test_a_runner_on_a_new_connection_is_the_same_runner(self):
        governor, same = Governor(), registration()
        for answers in (2, 3):
            governor.report(governor.register(same).id, did(answers=answers))
        assert governor.ledger.sums()[MODEL].answers == 3

    def test_what_was_done_before_the_daemon_started_is_not_counted(self):
        governor = Governor()
        runner = governor.register(registration(started=governor.started - 1))
        governor.report(runner.id, did(answers=1000))
        assert governor.ledger.sums()[MODEL].answers == 0
        governor.report(runner.id, did(answers=1001))
        assert governor.ledger.sums()[MODEL].answers == 1

    def test_sums_stay_when_there_were_more_processes_than_are_kept(self):
        ledger, rounds = Ledger(Measures(), 0), MAX_PROCESSES + 50
        alive = registration(pid=0)
        for pid in range(rounds):
            ledger.hear(replace(alive, pid=pid), replace(Measures(), answers=1))
            ledger.settle({alive.process})
        ledger.hear(alive, replace(Measures(), answers=2))  # the oldest of all, and still there
        assert ledger.sums()[MODEL].answers == rounds + 1

    def test_a_runner_that_lost_its_connection_and_was_merged_meanwhile_is_not_counted_twice(self):
        ledger, lost = Ledger(Measures(), 0), registration(pid=0, started=1.0)
        ledger.hear(lost, replace(Measures(), answers=5))
        for pid in range(1, MAX_PROCESSES + 50):
            other = registration(pid=pid, started=1.0 + pid)
            ledger.hear(other, replace(Measures(), answers=1))
            ledger.settle({other.process})
        ledger.hear(lost, replace(Measures(), answers=5))
        assert ledger.sums()[MODEL].answers == 5 + MAX_PROCESSES + 49
        ledger.hear(lost, replace(Measures(), answers=6))
        assert ledger.sums()[MODEL].answers == 6 + MAX_PROCESSES + 49

    def test_a_runner_that_outlives_all_that_are_kept_is_in_the_totals_once(self):
        governor, rounds = Governor(), 1100
        old = governor.register(registration(pid=0))
        for pid in range(1, rounds):
            governor.report(old.id, Report(totals=Totals(requests=pid)))
            other = governor.register(registration(pid=pid))
            governor.report(other.id, Report(totals=Totals(requests=1)))
            governor.leave(other)
        assert governor.totals()[MODEL].requests == 2 * (rounds - 1)

    async def test_models_beyond_those_that_are_told_apart_share_their_totals(self):
        governor = Governor()
        for number in range(MAX_MODELS + 20):
            runner = governor.register(registration(f"m{number}", pid=number))
            governor.report(runner.id, Report(totals=Totals(requests=1)))
        assert len(governor.totals()) == MAX_MODELS + 1
        assert governor.totals()[OTHERS].requests == 20

    def test_no_sum_goes_down_by_a_rounding_when_processes_are_merged(self, monkeypatch):
        """Prometheus would take the least decrease for a new beginning, and count everything once more."""
        monkeypatch.setattr(ledgers, "MAX_PROCESSES", 32)  # each of the sums is over all that are kept
        ledger, random, alive, none = Ledger(Measures(), 0), Random(1), registration(pid=0), Measures().plain_rounds
        for pid in range(32 + 200):
            seconds = [random.uniform(0, 100) for _ in range(3)]
            rounds = replace(none, sum=seconds[2])
            measures = Measures(saved=seconds[0], lost=seconds[1], plain_rounds=rounds)
            ledger.hear(replace(alive, pid=pid), measures)
            now = [ledger.sums()[MODEL]]
            ledger.settle({alive.process})
            now.append(ledger.sums()[MODEL])
            sums = [(one.saved, one.lost, one.plain_rounds.sum) for one in now]
            assert sums[0] == sums[1]

    async def test_however_many_models_are_named_the_series_are_bounded(self):
        governor = Governor()
        for number in range(MAX_MODELS + 20):
            runner = governor.register(registration(f"m{number}", pid=number))
            governor.report(runner.id, did(answers=1))
        found = await scraped(governor)
        requests = {key[1]: value for key, value in found.items() if key[0] == "pilotfish_requests_total"}
        assert len(requests) == MAX_MODELS + 1
        assert requests[OTHERS] == 20
        assert requests["m0"] == 1


class TestNow:
    async def test_models_are_told_by_state_and_a_fault_in_the_config_shows(self):
        governor = Governor()
        runner = governor.register(registration())
        governor.report(runner.id, replace(did(), standing=Standing("parked", "did not pay"), answering=2))
        governor.config_failed("no")
        found = await scraped(governor)
        assert found["pilotfish_runners", MODEL, "parked"] == 1
        assert found["pilotfish_runners", MODEL, "active"] == 0
        assert found["pilotfish_requests_running", MODEL] == 2
        assert found[("pilotfish_config_ok",)] == 0

    def test_a_pace_is_that_of_the_last_reports_and_a_pause_is_no_part_of_it(self):
        pace = Pace()
        pace.heard(0, 100.0)
        pace.heard(30, 101.0)
        assert pace.now(101.5) == 30
        assert pace.now(110.0) == 0
        pace.heard(40, 500.0)
        assert pace.now(500.0) == 10

    def test_a_name_with_quotes_and_breaks_stays_one_label(self):
        governor = Governor()
        governor.register(registration('a"b\n} 1\n#'))
        found = samples(DaemonMetrics(governor).render())
        assert found["pilotfish_requests_total", 'a"b\n} 1\n#'] == 0


class TestServed:
    async def test_a_state_folder_that_does_not_answer_is_looked_at_once_and_holds_up_no_scrape(self, monkeypatch):
        looks, answers = [], threading.Event()

        def hangs(folder):
            looks.append(folder)
            answers.wait(60)
            return [Logged(1.0, MODEL, "stock", "a reason")]

        monkeypatch.setattr(daemon_metrics.decision_log, "read", hangs)
        monkeypatch.setattr(daemon_metrics, "LOOKS_WITHIN", 0.01)
        metrics = DaemonMetrics(Governor())
        try:
            for _ in range(3):
                assert samples(await metrics.scrape())[("pilotfish_models_on_stock",)] == 0
            assert len(looks) == 1
        finally:
            answers.set()

        async def told():
            return samples(await metrics.scrape())[("pilotfish_models_on_stock",)]

        await until(told)

    async def test_over_the_socket_with_what_a_runner_did_in_its_last_moment(self, socket):
        async with governing() as daemon:
            async with running(socket, started=time.time() + 60, report_every=1e9) as runner:
                await until(lambda: daemon.governor.runners)
                await until(lambda: daemon.governor.runners[0].report != Report() or runner.plans)
                runner.now = did(answers=4)
            assert daemon.governor.ledger.sums()[MODEL].answers == 4
            async with connected(socket) as session, session.get("/metrics") as response:
                assert response.headers["Content-Type"] == "text/plain; version=0.0.4"
                assert samples(await response.read())["pilotfish_requests_total", MODEL] == 4

    async def test_on_the_front_behind_its_gate_from_another_daemon(self, socket, home):
        store, settings = Store(home / "models"), FrontSettings(host="127.0.0.1", port=0)
        mounted = metrics_routes(metrics_over(socket))
        async with (
            governing(),
            front_running(store, settings, mounted=mounted) as bound,
            aiohttp.ClientSession(bound.url) as session,
        ):
            async with session.get("/metrics") as response:
                assert samples(await response.read())[("pilotfish_config_ok",)] == 1
            for foreign in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
                async with session.get("/metrics", headers=foreign) as response:
                    assert response.status == 403

    async def test_without_a_daemon_it_says_what_to_do(self, socket):
        with pytest.raises(WorldError, match="pilotfish daemon"):
            await metrics_over(socket)()
