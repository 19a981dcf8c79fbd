"""Who is let in at a far end's port, without an engine: its process is a server that repeats what it is sent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from pilotfish.daemon.rpchost import far_host
from pilotfish.daemon.rpchost.far_host import FarHost
from pilotfish.daemon.rpchost.far_listening import FarAddress, Promised, far_listening, parse_address
from pilotfish.hooks.errors import ConfigError, EngineError
from tests.waiting import until

HELLO = b"\x0e first"
DEVICES = [{"name": "CPU", "description": "", "free": 5, "total": 7}]


class Repeating:
    """In the place of a `FarProcess`."""

    protocol = "7.0.0"
    silent_s = 0.0
    about = {"engine": "llama.cpp", "fingerprint": "f", "threads": 3}  # noqa: RUF012 - nobody changes it

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.writers: list[asyncio.StreamWriter] = []
        self.clings = False  # to near ends that have ended

    async def listen(self) -> Repeating:
        self._server = await asyncio.start_server(self._repeat, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def devices(self) -> list[dict[str, Any]]:
        return DEVICES

    async def ended(self) -> str:
        await self.gone.wait()
        return "ended by signal 9"

    def kill(self) -> None:
        self._server.close()
        for writer in self.writers:
            writer.close()
        self.gone.set()

    async def stop(self) -> None:
        self.kill()

    async def _repeat(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        if self.clings:
            await self.gone.wait()
        writer.close()


class Listening:
    """A host that listens, and the processes that it started."""

    def __init__(self, patience: float, failures: int = 0) -> None:
        self.processes: list[Repeating] = []
        self._failures = failures
        self.host = FarHost(self._start, patience=patience)  # type: ignore[arg-type]

    async def _start(self) -> Repeating:
        if self.processes and self._failures:
            self._failures -= 1
            raise EngineError("no memory")
        self.processes.append(await Repeating().listen())
        return self.processes[-1]

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[FarAddress]:
        async with far_listening(self.host, FarAddress(port=0), Promised("one processor", 1 << 20, False)) as bound:
            yield bound


async def arrive(at: FarAddress, first: bytes = HELLO) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(at.host, at.port)
    writer.write(first)
    return reader, writer


async def health(at: FarAddress) -> tuple[int, dict[str, Any]]:
    async with aiohttp.ClientSession() as client, client.get(f"http://{at.endpoint}/health") as answer:
        return answer.status, await answer.json()


async def end_of(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionError):
        return await reader.read() == b""
    return True


async def test_what_a_near_end_says_reaches_the_process_and_its_answer_comes_back():
    async with Listening(60)() as at:
        reader, writer = await arrive(at)
        assert await reader.readexactly(len(HELLO)) == HELLO
        writer.write(b"GET /health")  # is no HTTP any more
        assert await reader.readexactly(11) == b"GET /health"
        writer.close()


async def test_health_says_who_is_served():
    listening = Listening(60)
    async with listening() as at:
        assert (await health(at))[1] == {
            "pilotfish": (await health(at))[1]["pilotfish"], "instance": listening.host.instance,
            "protocol": "7.0.0", "fingerprint": "f",
            "engine": "llama.cpp", "processor": "one processor", "devices": DEVICES, "threads": 3, "memory": 1 << 20,
            "cache": False, "busy": "", "busy_s": 0.0, "silent_s": 0.0, "sessions": 0, "restarts": 0,
        }  # fmt: skip
        reader, writer = await arrive(at)
        await reader.readexactly(len(HELLO))
        _, served = await health(at)
        assert served["busy"] == "{}:{}".format(*writer.get_extra_info("sockname"))
        assert (served["sessions"], served["busy_s"] >= 0) == (1, True)
        writer.close()
        await until(lambda: listening.host.served is None)


async def test_a_second_near_end_is_turned_away(caplog):
    async with Listening(0.05)() as at:
        reader, first = await arrive(at)
        await reader.readexactly(len(HELLO))
        second, writer = await arrive(at)
        assert await end_of(second)
        writer.close()
        assert "was turned away: {}:{} is served".format(*first.get_extra_info("sockname")) in caplog.text
        first.write(b"still here")
        assert await reader.readexactly(10) == b"still here"
        first.close()


async def test_a_second_near_end_waits_for_the_first_to_go():
    async with Listening(60)() as at:
        reader, first = await arrive(at)
        await reader.readexactly(len(HELLO))
        second, writer = await arrive(at)
        first.close()
        assert await second.readexactly(len(HELLO)) == HELLO
        writer.close()


@pytest.mark.parametrize("failures", [0, 1])
async def test_a_process_that_ended_is_started_again_and_who_was_served_is_told(caplog, monkeypatch, failures):
    monkeypatch.setattr(far_host, "_FIRST_PAUSE", 0.01)
    listening = Listening(60, failures)
    async with listening() as at:
        reader, writer = await arrive(at)
        await reader.readexactly(len(HELLO))
        await listening.processes[0].stop()
        assert await end_of(reader)
        writer.close()
        reader, writer = await arrive(at)  # waits for the next process
        assert await reader.readexactly(len(HELLO)) == HELLO
        assert len(listening.processes) == 2
        assert (await health(at))[1]["restarts"] == 1 + failures
        writer.close()
    assert "ended by signal 9; it is started again" in caplog.text
    assert ("no memory; the next try" in caplog.text) == bool(failures)


async def test_a_process_that_hangs_is_ended_once_it_serves_nobody():
    listening = Listening(60)
    async with listening() as at:
        reader, writer = await arrive(at)
        await reader.readexactly(len(HELLO))
        (process,) = listening.processes
        process.silent_s = 4.0
        assert (await health(at))[1]["silent_s"] == 4.0
        assert not process.gone.is_set()  # whom it serves knows how long to wait
        writer.close()
        await until(process.gone.is_set)


async def test_one_that_serves_nobody_may_leave_a_question_unanswered_for_a_moment():
    listening = Listening(60)
    async with listening() as at:
        listening.processes[0].silent_s = 1.0
        assert (await health(at))[0] == 200
        listening.processes[0].silent_s = 4.0
        assert (await health(at))[0] == 503


@pytest.mark.parametrize(("silent", "seconds"), [(0.0, 0.05), (4.0, 600.0)], ids=["in time", "and hangs"])
async def test_a_process_that_does_not_let_a_near_end_go_is_ended(monkeypatch, silent, seconds):
    monkeypatch.setattr(far_host, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(far_host, "LET_GO", seconds)
    listening = Listening(60)
    async with listening() as at:
        listening.processes[0].clings = True
        listening.processes[0].silent_s = silent
        reader, writer = await arrive(at)
        await reader.readexactly(len(HELLO))
        writer.close()
        reader, writer = await arrive(at)
        assert await reader.readexactly(len(HELLO)) == HELLO
        assert len(listening.processes) == 2
        writer.close()


async def test_a_process_that_hangs_is_ended_before_anybody_meets_it(monkeypatch):
    monkeypatch.setattr(far_host, "PULSE", 0.01)
    listening = Listening(60)
    async with listening():
        listening.processes[0].silent_s = 4.0
        await until(listening.processes[0].gone.is_set)


async def test_a_process_that_hangs_under_what_is_sent_to_it_is_ended_in_the_end(monkeypatch):
    """What it has not taken hides whether the near end is still there."""
    monkeypatch.setattr(far_host, "PULSE", 0.01)
    listening = Listening(60)
    async with listening() as at:
        reader, writer = await arrive(at)
        await reader.readexactly(len(HELLO))
        listening.processes[0].silent_s = 61.0
        assert await end_of(reader)
        writer.close()
    assert listening.processes[0].gone.is_set()


async def test_while_there_is_no_process_health_is_not_well(monkeypatch):
    monkeypatch.setattr(far_host, "_FIRST_PAUSE", 600.0)
    monkeypatch.setattr(far_host, "_LONGEST_PAUSE", 600.0)
    listening = Listening(0.05)
    async with listening() as at:
        assert (await health(at))[0] == 200
        await listening.processes[0].stop()
        await until(lambda: not listening.host.ready)
        status, said = await health(at)
        assert (status, said["devices"]) == (503, DEVICES)
        reader, writer = await arrive(at)
        assert await end_of(reader)
        writer.close()


async def test_what_is_neither_is_cut_off(caplog):
    async with Listening(60)() as at:
        reader, writer = await arrive(at, b"\x00")
        assert await end_of(reader)
        writer.close()
    assert "neither RPC nor HTTP" in caplog.text


@pytest.fixture(autouse=True)
def _every_line_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test is told is not kept back because another one was told so in the same second."""
    for name in ("pilotfish.rpchost.peers", "pilotfish.rpchost.refusals"):
        monkeypatch.setattr(logging.getLogger(name), "filters", [])


@pytest.mark.parametrize(
    ("text", "knows", "expected"),
    [
        ("", False, "127.0.0.1:50052"),
        (":7", False, "127.0.0.1:7"),
        ("localhost", False, "localhost:50052"),
        ("0.0.0.0:0", True, "0.0.0.0:0"),
    ],
)
def test_addresses(text, knows, expected):
    assert parse_address(text, knows).endpoint == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0.0.0.0:50052", r"neither password nor encryption.*ssh -N -L 50052:127.0.0.1:50052 user@.*--i-know"),
        ("far.example", "--i-know"),
        ("127.0.0.1:x", "no port from 0 to 65535"),
        ("[::1]:5", "no IPv6"),
    ],
)
def test_addresses_that_are_refused(text, why):
    with pytest.raises(ConfigError, match=why):
        parse_address(text, knows=False)
