"""Certifying in idle moments: it waits, a request ends it, and it tries again."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from pilotfish.daemon.certify.idle_certifier import IdleCertifier, certifying, idle_certifier
from pilotfish.hooks.environment import OFF
from tests.waiting import until

COPY_JOB = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.readline())"
HANG = "import sys, time, pathlib; pathlib.Path(sys.argv[1]).write_text('begun'); time.sleep(600)"


def certifier(script: str, path: Path, busy: list[bool]) -> IdleCertifier:
    command = (sys.executable, "-c", script, str(path))
    return IdleCertifier("job\n", lambda: busy[0], command=command, idle_seconds=0.02, poll_seconds=0.01)


async def test_the_job_reaches_the_process_and_its_success_is_reported(tmp_path: Path) -> None:
    assert await certifier(COPY_JOB, tmp_path / "out", [False]).run()
    assert (tmp_path / "out").read_text() == "job\n"


async def test_a_process_that_fails_is_not_repeated(tmp_path: Path) -> None:
    assert not await certifier("raise SystemExit(1)", tmp_path / "out", [False]).run()


@pytest.mark.parametrize(("exits", "made"), [("3", False), ("0 if len(tries) > 1 else 3", True)])
async def test_one_that_had_too_little_time_has_another_try_but_not_for_ever(tmp_path: Path, exits: str, made: bool):
    out = tmp_path / "out"
    script = "import sys; file = open(sys.argv[1], 'a+'); file.write('x'); file.seek(0); tries = file.read(); "
    script += f"sys.exit({exits})"
    command = (sys.executable, "-c", script, str(out))
    tried = IdleCertifier("job\n", lambda: False, command=command, idle_seconds=0.02, poll_seconds=0.01, tries=3)
    assert await tried.run() == made
    assert len(out.read_text()) == (2 if made else 3)


async def test_while_requests_come_nothing_is_started(tmp_path: Path) -> None:
    busy = [True]
    task = asyncio.create_task(certifier(COPY_JOB, tmp_path / "out", busy).run())
    await asyncio.sleep(0.2)
    assert not (tmp_path / "out").exists()
    busy[0] = False
    assert await task


async def test_how_long_it_waits_can_be_changed_while_it_waits(tmp_path: Path) -> None:
    idle = certifier(COPY_JOB, tmp_path / "out", [False])
    idle.idle_seconds = 1e9
    task = asyncio.create_task(idle.run())
    await asyncio.sleep(0.1)
    assert not (tmp_path / "out").exists()
    idle.idle_seconds = 0.02
    assert await task


async def test_a_request_ends_it_and_it_starts_again_later(tmp_path: Path) -> None:
    busy, path = [False], tmp_path / "out"
    idle = certifier(HANG, path, busy)
    async with certifying(idle):
        await until(path.exists)
        busy[0] = True
        await until(lambda: idle.interruptions == 1)
        path.unlink()
        busy[0] = False
        await until(path.exists)


@pytest.mark.parametrize(("script", "times"), [(COPY_JOB, 1), ("raise SystemExit(1)", 0)], ids=["made", "not made"])
async def test_whoever_wants_to_know_is_told_of_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, times: int
) -> None:
    told: list[str] = []
    idle = certifier(script, tmp_path / "out", [False])
    ended = asyncio.Event()
    run = idle.run

    async def noted() -> bool:
        try:
            return await run()
        finally:
            ended.set()

    monkeypatch.setattr(idle, "run", noted)
    async with certifying(idle, lambda: told.append("a certificate")):
        await ended.wait()
        await until(lambda: len(told) == times)
    assert len(told) == times


def test_it_can_be_switched_off_and_without_a_job_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PILOTFISH_CERTIFY", raising=False)
    assert idle_certifier("job\n", lambda: False) is not None
    assert idle_certifier("", lambda: False) is None
    for word in (*OFF, "OFF"):
        monkeypatch.setenv("PILOTFISH_CERTIFY", word)
        assert idle_certifier("job\n", lambda: False) is None
