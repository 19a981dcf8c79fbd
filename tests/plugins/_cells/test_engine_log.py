"""Where an engine library's words go."""

from __future__ import annotations

import logging

import pytest

from pilotfish.plugins._cells.log import EngineLog

INFO = 2


def test_what_is_said_of_another_model_meanwhile_is_not_for_those_who_read_of_this_one(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: told.append(record.getMessage()))
    monkeypatch.setattr(logging.getLogger("pilotfish.lib"), "handlers", [handler])
    monkeypatch.setattr(logging.getLogger("pilotfish.lib"), "propagate", False)
    logging.getLogger("pilotfish.lib").setLevel(logging.DEBUG)
    log = EngineLog("lib", "pilotfish.lib")
    log.target = "stderr"
    log.write(INFO, b"CPU model buffer size = 300 MiB\n", None)
    with log.aside():
        log.write(INFO, b"CPU model buffer size = 30 MiB\n", None)
    log.write(INFO, b"CPU KV buffer size = 5 MiB\n", None)
    assert capfd.readouterr().err == "CPU model buffer size = 300 MiB\nCPU KV buffer size = 5 MiB\n"
    assert told == ["CPU model buffer size = 30 MiB"]
