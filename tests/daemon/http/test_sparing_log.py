"""A log that peers write to, on a clock of the test's own."""

from __future__ import annotations

import logging

import pytest
from aiohttp.http import HttpProcessingError

from pilotfish.daemon.http.connection import log
from pilotfish.daemon.http.sparing_log import Sparing
from pilotfish.daemon.lab.fakes.fake_clock import FakeClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of the servers' log."""
    clock = FakeClock()
    monkeypatch.setattr(log, "filters", [Sparing(clock=clock)])
    return clock


def test_one_line_a_second_says_how_many_were_kept_back(clock, caplog):
    for _ in range(3000):
        log.warning("refused %s", "a peer")
        clock.advance(1 / 1024)
    assert caplog.messages == ["refused a peer", *["refused a peer (and 1023 more)"] * 2]


def test_after_a_pause_a_line_comes_at_once(clock, caplog):
    for _ in range(3):
        log.warning("refused")
        clock.advance(60)
    assert caplog.messages == ["refused"] * 3


def test_what_is_no_http_is_one_line_without_a_traceback(clock, caplog):
    for _ in range(5):
        try:
            raise HttpProcessingError(message="Bad status line\n'\\x16\\x03'")
        except HttpProcessingError:
            log.exception("Error handling request from %s", "127.0.0.1")
    (record,) = caplog.records
    assert record.exc_info is None
    assert "\n" not in record.getMessage()
    assert "Bad status line" in record.getMessage()


@pytest.mark.parametrize(
    "said", ["Expected LF:\n\n  b'secret'", "Bad status line 'secret'", "Bad status line\n'secret'"]
)
def test_nothing_that_a_peer_sent_is_repeated(clock, caplog, said):
    try:
        raise HttpProcessingError(message=said)
    except HttpProcessingError:
        log.exception("Error handling request from %s", "127.0.0.1")
    assert said.split(":")[0][:11] in caplog.text
    assert "secret" not in caplog.text


def test_our_own_failures_are_told_in_full(clock, caplog):
    for _ in range(2):
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            log.exception("Unhandled exception")
    assert [record.exc_info is not None for record in caplog.records] == [True, True]
    assert caplog.records[0].levelno == logging.ERROR
