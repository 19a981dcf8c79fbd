"""`pilotfish top`: what it says of models that work, rest, fail or are stock's, and how it sits in a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from dataclasses import replace

import pytest
from rich.cells import cell_len

from pilotfish.daemon.cli.top_screen import screen, spoken
from pilotfish.daemon.cli.top_snapshot import Event, TopSnapshot, changes, decided, snapshot
from pilotfish.daemon.control.decision_log import Logged, record
from pilotfish.daemon.control.governing import governing
from pilotfish.daemon.control.governor import Governor
from pilotfish.daemon.control.plans import Registration, Report
from pilotfish.daemon.core.measures import Measures
from pilotfish.daemon.core.totals import Standing, Totals
from tests.daemon.control.governed import running
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("home")

TOP = (sys.executable, "-m", "pilotfish.daemon.cli", "top")
STOCK = Logged(5.0, "gemma", "stock", "nothing to gain: " + "a lane of one width " * 9)


def governed(*reports: Report, model: str = "m") -> Governor:
    """A daemon whose runner has said these things, one after the other."""
    governor = Governor()
    runner = governor.register(Registration(7, 4711, model, governor.started + 60, lane="bf16-f16"))
    for report in reports:
        governor.report(runner.id, report)
    return governor


def at(governor: Governor | None, *decisions: Logged) -> TopSnapshot:
    told = json.loads(json.dumps(governor.status())) if governor else None
    return snapshot("/run/p.sock", told, decisions)


def lines(now: TopSnapshot, *events: Event, width: int = 80, height: int | None = None) -> list[str]:
    return screen(now, events, width, height).plain.split("\n")


PARKED = Report(
    totals=Totals(requests=3, saved_seconds=-0.4, dropped={"echo": "raised ValueError"}),
    standing=Standing("parked", "did not pay lately"),
    measures=replace(Measures(), plain=60, accepted=30, rejected=10),
    answering=1,
)


class TestShown:
    def test_a_model_with_state_reason_and_figures(self):
        text = lines(at(governed(Report(), PARKED)))
        (row,) = (line for line in text if line.startswith("m "))
        assert row.split() == ["m", "parked", row.split()[2], "75%", "-0.4", "s", "3+1"]
        assert "  did not pay lately" in text
        assert "  drafter echo was dropped: raised ValueError" in text

    def test_what_is_stocks_with_the_whole_reason(self):
        text = lines(at(governed(), STOCK))
        assert any(line.startswith("gemma, since 1970") for line in text)
        assert " ".join(" ".join(text).split()).count("a lane of one width") == 9

    def test_no_daemon_and_a_config_that_is_not_in_force(self):
        assert "no daemon runs at /run/p.sock" in lines(at(None))[0]
        governor = governed()
        governor.config_failed("pilotfish.toml: not valid TOML")
        assert "config not in force: pilotfish.toml: not valid TOML" in lines(at(governor))

    @pytest.mark.parametrize("model", ["名前" * 40, "\x1b[2J" * 30, "a\nb\tc", "[red]x[/red]", "registry/" * 20 + "m"])
    @pytest.mark.parametrize("height", [None, 24])
    def test_every_line_fits_80_columns_and_obeys_no_name(self, model, height):
        events = [Event(number, model, "reason " * 30) for number in range(50)]
        text = lines(at(governed(PARKED, model=model), replace(STOCK, model=model)), *events, height=height)
        assert max(map(cell_len, text)) <= 80
        assert "\x1b" not in "".join(text)
        assert height is None or len(text) <= height

    def test_the_newest_events_are_what_there_is_room_for(self):
        events = [Event(float(number), "m", f"event {number}.") for number in range(50)]
        text = "\n".join(lines(at(governed()), *events, height=12))
        assert text.index("event 49.") < text.index("event 48.")
        assert "event 0." not in text

    @pytest.mark.parametrize(
        ("seconds", "words"),
        [(0.44, "0.4 s"), (-3, "-3.0 s"), (9.96, "10 s"), (242, "4 min 2 s"), (3600, "1 h"), (183_600, "2 d 3 h")],
    )
    def test_times_are_said_as_people_say_them(self, seconds, words):
        assert spoken(seconds) == words


class TestEvents:
    def test_launches_are_remembered(self):
        (event,) = decided([replace(STOCK, reason="one width")])
        assert (event.time, event.model, event.text) == (5.0, "gemma", "left to stock: one width")

    def test_what_changed_between_two_looks(self):
        none, idle, parked, gone = at(Governor()), at(governed()), at(governed(PARKED)), at(None)
        said = [[event.text for event in changes(*pair)] for pair in ((none, idle), (idle, parked), (idle, none))]
        assert said == [
            ["loaded, active"],
            ["parked: did not pay lately", "drafter echo was dropped: raised ValueError"],
            ["unloaded"],
        ]
        assert [event.text for event in changes(parked, gone)] == ["the daemon is gone"]
        assert list(changes(parked, parked)) == []


async def told(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *TOP, *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env={**os.environ, "COLUMNS": "80"}
    )
    text, _ = await process.communicate()
    assert process.returncode == 0
    return text.decode()


class TestPrinted:
    async def test_without_a_terminal_once_and_as_json(self, socket, home):
        record(home / "state", "gemma", "stock", "one width")
        async with governing() as daemon, running(socket, started=time.time() + 60) as runner:
            runner.now = PARKED
            await until(lambda: daemon.governor.totals())
            text = await told()
            assert "\x1b" not in text
            assert "smollm2:135m" in text
            assert "left to stock: one width" in text
            found = json.loads(await told("--json"))
        (loaded,) = found["loaded"]
        assert (loaded["state"], loaded["right"], loaded["answering"]) == ("parked", 0.75, 1)
        assert [event["model"] for event in found["events"]] == ["gemma"]


@pytest.mark.parametrize("leave", [b"q", signal.SIGTERM, signal.SIGINT], ids=["q", "SIGTERM", "SIGINT"])
def test_a_terminal_is_left_as_it_was(leave):
    terminal, end = pty.openpty()
    before = termios.tcgetattr(end)
    process = subprocess.Popen(TOP, stdin=end, stdout=end, stderr=end, env={**os.environ, "TERM": "xterm-256color"})
    seen = b""
    while b"no daemon runs" not in seen:
        seen += os.read(terminal, 4096)
    assert not termios.tcgetattr(end)[3] & (termios.ECHO | termios.ICANON)
    if isinstance(leave, bytes):
        os.write(terminal, leave)
    else:
        process.send_signal(leave)
    assert process.wait(60) == 0
    assert termios.tcgetattr(end) == before
    os.close(end)
    while b"\x1b[?1049l" not in seen:  # the other screen comes back
        seen += os.read(terminal, 4096)
    os.close(terminal)
