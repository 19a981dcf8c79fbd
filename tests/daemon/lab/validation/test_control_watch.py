"""What serves a model behind an Ollama's API is found by its processes, and what it says of itself is recorded."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest

from pilotfish.daemon.lab.fakes import fake_pin
from pilotfish.daemon.lab.receipts.receipt_summary import summary
from pilotfish.daemon.lab.receipts.receipt_types import ControlRecord, RunVerdict, ServedBy, TrialTimes, TrialVerdict
from pilotfish.daemon.lab.validation import control_watch
from pilotfish.daemon.lab.validation.control_ollama import ControlAnswer, ControlOllama
from pilotfish.daemon.lab.validation.control_watch import UNSEEN, ControlWatch, seen
from pilotfish.daemon.processes.ports import free_port
from tests.daemon.lab.receipts.receipts import a_receipt
from tests.daemon.lab.validation.validating import a_course
from tests.waiting import wait_until

WEIGHTS = "sha256:" + "a" * 64
EXPLAINED = {
    "lane": {"name": "flash", "parity": "lane", "widths": [1, 2, 3]},
    "reason": "",
    "totals": {"drafted": 40, "accepted": 31},
}
SERVER = """
import http.server, json, subprocess, sys

said = json.loads(sys.argv[1])

class Said(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = said.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body or {"error": "File Not Found"}).encode())

    def log_message(self, *words):
        pass

child = subprocess.Popen([sys.executable, *json.loads(sys.argv[2])]) if sys.argv[2] != "--model" else None
try:
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Said).serve_forever()
finally:
    child and child.kill()
"""


@contextmanager
def an_ollama(folder, explained, blob="sha256-" + "a" * 64):
    """Its URL. A process of it serves the weights in `blob`, and says `explained` of itself."""
    (folder / "server.py").write_text(SERVER)
    inner, outer = free_port(), free_port()
    model = json.dumps({"/pilotfish/explain": explained} if explained else {})
    words = [str(folder / "server.py"), model, "--model", f"/models/blobs/{blob}", "--port", str(inner)]
    version = json.dumps({"/api/version": {"version": "0.33.2"}})
    process = subprocess.Popen([sys.executable, words[0], version, json.dumps(words), str(outer)])
    try:
        wait_until(lambda: listens(inner) and listens(outer), "the servers do not come up")
        yield f"http://127.0.0.1:{outer}"
    finally:
        process.send_signal(2)
        process.wait(10)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    ("explained", "served_by", "drafted"), [(EXPLAINED, ServedBy.PILOTFISH, 40), (None, ServedBy.STOCK, None)]
)
async def test_a_runner_of_pilotfishs_is_told_from_a_stock_server(tmp_path, explained, served_by, drafted):
    with an_ollama(tmp_path, explained) as url:
        found = await seen(url, [WEIGHTS])
    assert (found.version, found.served_by, found.drafted) == ("0.33.2", served_by, drafted)
    assert found.widths == ((1, 2, 3) if explained else ())


async def test_a_process_that_serves_other_weights_is_not_taken_for_it(tmp_path):
    with an_ollama(tmp_path, EXPLAINED, "sha256-" + "b" * 64) as url:
        found = await seen(url, [WEIGHTS])
    assert (found.version, found.served_by, found.about) == ("0.33.2", ServedBy.UNKNOWN, UNSEEN)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://no.such.host.invalid:1", "http://[", "nonsense"])
async def test_where_nothing_can_be_seen_nothing_is_claimed(url):
    found = await seen(url, [WEIGHTS])
    assert (found.version, found.served_by) == ("", ServedBy.UNKNOWN)
    assert found.about.startswith(UNSEEN)


def test_drafts_are_counted_from_the_cold_answer_on(monkeypatch):
    counts = iter([(10, 5), (30, 20), (50, 31), (7, 2), (9, 3)])

    async def look(url, weights):
        drafted, accepted = next(counts)
        return ControlRecord(url, "0", ServedBy.PILOTFISH, drafted=drafted, accepted=accepted)

    monkeypatch.setattr(control_watch, "seen", look)
    watch = ControlWatch()
    for _ in range(3):
        watch.look("a", fake_pin())
    (found, never) = watch.records(("a", "b"))
    assert (found.drafted, found.accepted, never.about) == (40, 26, "it was not asked")
    watch.look("a", fake_pin())  # it was loaded anew
    assert watch.records(("a",))[0].drafted == 7


def test_each_control_has_trials_of_its_own_and_neither_decides(monkeypatch):
    async def answer(ollama, prompt, mode, tokens):
        return ControlAnswer("other", 3, TrialTimes(0.1, 0.2))

    async def look(url, weights):
        return ControlRecord(url, "0.33.2", ServedBy.STOCK if "one" in url else ServedBy.PILOTFISH, drafted=0)

    monkeypatch.setattr(ControlOllama, "answer", answer)
    monkeypatch.setattr(control_watch, "seen", look)
    urls = ("http://one", "http://two")
    course = a_course(controls=2, repeats=1, oracle_cases=False, lengths=("2",))
    receipt = replace(course, controls=urls).run()
    mine = [[(t.case, t.prompt) for t in receipt.trials if t.control == n] for n in (0, 1)]
    assert mine[0] == mine[1] == [("cold", "tale"), ("", "tale"), ("", "list")]
    assert {t.verdict for t in receipt.trials if t.control is not None} == {TrialVerdict.DIFFERENT}
    assert receipt.verdict is not RunVerdict.FAILED
    assert [(one.url, one.served_by) for one in receipt.controls] == list(
        zip(urls, ("stock", "pilotfish"), strict=True)
    )


def test_the_summary_says_what_served_each_control():
    ours = ControlRecord("http://x", "0.33.2", ServedBy.PILOTFISH, "flash", "lane", (1, 2), 40, 31)
    receipt = a_receipt()
    trials = (*receipt.trials, replace(receipt.trials[-1], name="control-2", control=1))
    text = summary(replace(receipt, trials=trials, controls=(*receipt.controls, ours, ours)))
    assert "control 1, an Ollama 0.33.2 with its own llama-server, by bytes and counts (it shows no ids): 1 eq" in text
    assert "control 2, an Ollama 0.33.2 with a runner of pilotfish's in the lane flash (parity lane), 31 of 40" in text
    assert "control 3, an Ollama that was not asked" in text


def test_a_controls_cold_answer_and_one_that_differs_are_in_no_rate():
    receipt = a_receipt()
    warm = receipt.trials[-1]
    cold = replace(warm, name="cold", case="cold", times=TrialTimes(9.0, 10.0))
    other = replace(warm, name="other", verdict=TrialVerdict.DIFFERENT, times=TrialTimes(0.1, 100.0))
    text = summary(replace(receipt, trials=(*receipt.trials, cold, other)))
    assert "2 equal, 1 different; 4.00 tok/s; its cold answer took 10.00 s" in text
