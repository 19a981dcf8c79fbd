"""The course over delays: what the processes it starts are asked for, and what is made of what they say."""

from __future__ import annotations

import json
import os
import socket
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.daemon.farends.looking import FarEndSeen
from pilotfish.daemon.lab.spread import spread_course
from pilotfish.daemon.lab.spread.far_hosts import HostSize, far_hosts
from pilotfish.daemon.lab.spread.spread_child import ALONE, ANSWERS, MARK, ask_child
from pilotfish.daemon.lab.spread.spread_course import SpreadCourse
from pilotfish.daemon.lab.spread.spread_row import BlockCost, SpreadAnswer, SpreadRow, SpreadSize
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions, EngineSetting

ENDS = (("127.0.0.1", 50052), ("127.0.0.1", 50053))
GREEDY = SpreadAnswer("edit", "copy", "greedy", (1, 2, 3), (10.0, 8.0, 12.0), (30.0, 25.0, 40.0), 9, 8, equal=True)
SEEDED = replace(GREEDY, mode="seeded", ids=(4, 5))
ROW = SpreadRow(0.0, load=2.0, lane="flash", widths=(1, 2), answers=(GREEDY, SEEDED))
BLOCKS = (BlockCost(1, 0.05, True), BlockCost(2, 0.06, True), BlockCost(4, 0.1, False))
SETTING = {
    "cache_type_k": "bf16", "cache_type_v": "f16", "flash_attention": True, "repack": True, "environment": [],
    "engine": "llama",
}  # fmt: skip


class Asked:
    """Says what the processes would; `alone` are the ids without pilotfish."""

    def __init__(self, alone=(1, 2, 3), failing=None):
        self.jobs, self._alone, self._failing = [], alone, failing

    def __call__(self, job, stage):
        self.jobs.append(job)
        if job["what"] == self._failing:
            raise EngineError("loading: the far end was lost")
        if job["what"] == ALONE:
            return {"ids": {"edit": list(self._alone)}}
        return {"row": ROW.to_json(), "prompts": {"edit": [7, 8]}, "setting": SETTING, "block": 512}


@pytest.fixture(autouse=True)
def unseen(monkeypatch):
    """No far end is looked at."""
    monkeypatch.setattr(spread_course, "with_far_ends", lambda options, engine: replace(options, far_ends=engine.rpc))
    monkeypatch.setattr(spread_course, "look", lambda endpoints: [])


def course(asked, delays=(0.0, 0.01), blocks=lambda *how: BLOCKS):
    return SpreadCourse(Path("m.gguf"), ENDS, delays, SpreadSize(), ask=asked, time_blocks=blocks)


def test_every_delay_has_its_answers_its_blocks_and_one_answer_alone_for_all():
    asked = Asked()
    rows = list(course(asked).run())
    assert [row.delay for row in rows] == [0.0, 0.01]
    assert [job["what"] for job in asked.jobs] == [ANSWERS, ALONE, ANSWERS]
    assert all(row.blocks == BLOCKS and not row.differs for row in rows)
    assert [answer.apart for answer in rows[1].answers] == [True, None]


def test_the_model_is_loaded_over_the_network_and_alone_over_none():
    asked = Asked()
    list(course(asked, (0.01,)).run())
    answers, alone = asked.jobs
    assert alone["endpoints"] == ["127.0.0.1:50052", "127.0.0.1:50053"]
    assert alone["setting"] == SETTING
    assert len(set(answers["options"]["far_ends"])) == 2
    assert not set(answers["options"]["far_ends"]) & set(alone["endpoints"])
    assert not Path(answers["state"]).exists()  # nothing is left of what it remembered


def test_blocks_are_timed_in_the_lane_s_setting():
    heard = []
    list(course(Asked(), (0.0,), lambda *how: heard.append(how) or BLOCKS).run())
    ((_, setting, options, widths),) = heard
    assert setting == EngineSetting("bf16", "f16", True)
    assert isinstance(options, EngineOptions)
    assert widths[0] == 1


def test_other_ids_alone_are_a_difference():
    (row,) = course(Asked(alone=(1, 2, 9)), (0.0,)).run()
    assert row.differs
    assert [answer.differs for answer in row.answers] == [True, False]


def test_a_far_end_that_still_holds_the_process_before_is_waited_for(monkeypatch):
    looks = [[FarEndSeen("a", busy="10.0.0.9:4"), FarEndSeen("b")], [FarEndSeen("a"), FarEndSeen("b")]]
    monkeypatch.setattr(spread_course, "look", lambda endpoints: looks.pop(0) if looks else [])
    list(course(Asked(), (0.0,)).run())
    assert not looks


def test_what_fails_costs_its_row_and_no_other():
    rows = list(course(Asked(failing=ANSWERS)).run())
    assert [row.failed for row in rows] == ["loading: the far end was lost"] * 2


def test_figures_of_a_row():
    row = replace(ROW, blocks=BLOCKS)
    assert row.step == 0.05
    assert row.steps(4) == pytest.approx(2.0)
    assert row.steps(32) is None
    assert row.equal_widths == (1, 2)
    assert (GREEDY.plain_rate, GREEDY.speculative_rate, GREEDY.ratio) == (10.0, 30.0, 3.0)
    assert SpreadRow.from_json(json.loads(json.dumps(row.to_json()))) == row


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A module of this text can be started."""

    def write(text):
        (tmp_path / "stand_in.py").write_text(textwrap.dedent(text))
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
        return "stand_in"

    return write


def test_a_process_is_heard_to_its_end(script):
    name = script(f"""
        import json, sys
        print("noise of a library")
        print({MARK!r} + json.dumps({{"stage": "loading"}}), flush=True)
        print({MARK!r} + json.dumps({{"done": json.loads(sys.argv[1])}}), flush=True)
    """)
    stages = []
    assert ask_child({"what": "it"}, stages.append, name) == {"what": "it"}
    assert stages[0] == "loading"


def test_one_that_dies_says_at_what_and_with_which_words(script):
    name = script(f"""
        import sys
        print({MARK!r} + '{{"stage": "summary"}}', flush=True)
        sys.exit("the far end 127.0.0.1:50052 was lost")
    """)
    with pytest.raises(EngineError, match=r"summary: .*127\.0\.0\.1:50052 was lost"):
        ask_child({}, lambda what: None, name)


HOST = (
    "import json, sys; print(json.dumps({'endpoint': '127.0.0.1:9', 'said': sys.argv}), flush=True); sys.stdin.read()"
)


def test_far_ends_say_where_they_are(script):
    with far_hosts(2, HostSize(1, 64), command=(sys.executable, "-c", HOST)) as ends:
        assert ends == (("127.0.0.1", 9), ("127.0.0.1", 9))


def test_one_that_does_not_start_is_an_error_with_its_words():
    missing = (sys.executable, "-c", "import sys; sys.exit('holds no libggml-rpc')")
    with pytest.raises(EngineError, match="holds no libggml-rpc"), far_hosts(1, HostSize(), command=missing):
        pass


def test_a_proxy_stands_before_each_far_end_and_goes_with_the_delay():
    """What it relays is the proxy's own test's; here, that it leads to that far end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        seen = []

        class Connecting(Asked):
            def __call__(self, job, stage):
                if job["what"] == ANSWERS:
                    host, port = job["options"]["far_ends"][0].split(":")
                    with socket.create_connection((host, int(port)), 30) as client:
                        client.sendall(b"!")
                        accepted, _ = server.accept()
                        with accepted:
                            seen.append(accepted.recv(1))
                return super().__call__(job, stage)

        ends = (server.getsockname()[:2],)
        list(replace(course(Connecting(), (0.001,)), far_ends=ends).run())
    assert seen == [b"!"]
