"""The process that computes, in its place a program that says what such a one says."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from pilotfish.daemon.processes.ports import free_port
from pilotfish.daemon.rpchost import far_process
from pilotfish.daemon.rpchost.far_process import FarProcess
from pilotfish.hooks.errors import EngineError
from tests.waiting import until

SERVES = """
import json, socketserver, struct, sys, threading

class Server(socketserver.BaseRequestHandler):
    def handle(self):
        assert len(self.request.recv(100)) == 33
        self.request.sendall(struct.pack("<Q4B24x", 28, 7, 1, 2, 0))

free = 9
server = socketserver.TCPServer(("127.0.0.1", int(sys.argv[1])), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(json.dumps({"engine": "e", "fingerprint": "f", "threads": 1, "devices": [{"free": free}]}), flush=True)
for _ in sys.stdin:
    free -= 1
    print(json.dumps({"devices": [{"free": free}]}), flush=True)
sys.exit("it was let go")
"""


async def started(program: str = SERVES) -> FarProcess:
    port = free_port()
    return await FarProcess.start((sys.executable, "-c", program, str(port)), port)


async def test_it_says_what_it_has_now_and_what_it_speaks():
    process = await started()
    assert (process.protocol, process.about["engine"]) == ("7.1.2", "e")
    assert [await process.devices(), await process.devices()] == [[{"free": 8}], [{"free": 7}]]
    await process.stop()
    assert await process.ended() == "ended by signal 9"


async def test_one_that_does_not_answer_has_what_it_had(monkeypatch):
    monkeypatch.setattr(far_process, "ANSWER_SECONDS", 0.05)
    process = await started()
    os.kill(process.pid, signal.SIGSTOP)
    assert await process.devices() == [{"free": 9}]
    assert process.silent_s >= 0.05
    await process.stop()  # also one that is stopped
    assert await process.ended() == "ended by signal 9"


@pytest.mark.parametrize(
    "program",
    ["import sys; sys.exit('no such device')", "print('{\"devices\": []}', flush=True); raise SystemExit('no port')"],
)
async def test_one_that_does_not_come_up_is_an_error_with_its_last_words(program):
    with pytest.raises(EngineError, match=r"the far end's process ended with code 1: no (such device|port)"):
        await started(program)


async def test_one_that_answers_again_is_silent_no_more(monkeypatch):
    monkeypatch.setattr(far_process, "ANSWER_SECONDS", 0.05)
    process = await started()
    os.kill(process.pid, signal.SIGSTOP)
    await process.devices()
    os.kill(process.pid, signal.SIGCONT)
    await until(lambda: not process.silent_s)
    await process.stop()


NEVER_GREETS = SERVES.replace("self.request.sendall(", "threading.Event().wait(60), id(")


@pytest.mark.parametrize(
    "program",
    ["import time; time.sleep(60)", "print('{\"devices\": []}', flush=True); input()", NEVER_GREETS],
    ids=["says nothing", "does not listen", "does not greet"],
)
async def test_one_that_never_answers_is_given_up(monkeypatch, program):
    monkeypatch.setattr(far_process, "START_SECONDS", 0.5)
    with pytest.raises(EngineError, match=r"did not answer within 0\.5 s of its start, and was ended"):
        await started(program)
