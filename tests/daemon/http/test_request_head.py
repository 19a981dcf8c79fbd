"""Heads of requests, as they come and as they are handed on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.daemon.http.request_head import RequestHead, end_of_head

HEAD = (
    b"POST /api/blobs/sha256-1?x=/y HTTP/1.1\r\nHost: here\r\nConnection: TE, keep-alive\r\nTE: trailers\r\n"
    b"X-Odd:  two  spaces \r\nX-Odd: again\r\nKeep-Alive: 5\r\nExpect: 100-continue\r\n\r\n"
)


@pytest.mark.parametrize("end", [b"\r\n\r\n", b"\n\n", b"\n\r\n"])
def test_a_head_ends_with_an_empty_line_however_it_is_cut(end):
    data = b"GET / HTTP/1.1\r\nHost: a" + end + b"body"
    assert [end_of_head(data[:n], n - 1) for n in range(1, len(data) - 4)] == [None] * (len(data) - 5)
    assert end_of_head(data) == len(data) - 4


def test_a_head_tells_its_parts():
    head = RequestHead.parse(HEAD)
    assert (head.method, head.path, head.version) == ("POST", "/api/blobs/sha256-1", "HTTP/1.1")
    assert head.values("x-odd") == ["two  spaces", "again"]
    assert head.single("host") == "here"
    assert head.single("origin") == ""


def test_the_whole_url_of_a_proxy_request_has_a_path_too():
    assert RequestHead.parse(b"GET http://box:1/api/ps?x HTTP/1.1\r\n\r\n").path == "/api/ps"


def test_only_a_target_that_begins_with_a_host_is_a_whole_url():
    assert RequestHead.parse(b"GET /api/pshttp://box HTTP/1.1\r\n\r\n").path == "/api/pshttp://box"


def test_a_server_is_named_by_its_host_line_and_by_a_whole_url():
    head = RequestHead.parse(b"GET http://me@box:1/api/ps HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert head.hosts == ["localhost", "box:1"]


@pytest.mark.parametrize("lines", ["Content-Length: 2", "Transfer-Encoding: chunked", "X-Odd:\tcaf\xe9 "])
def test_what_every_server_reads_alike_is_plain(lines):
    assert RequestHead.parse(f"POST /api/chat?x HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n".encode("latin-1")).is_plain


@pytest.mark.parametrize(
    "lines",
    [
        "Content-Length: 2\r\nContent-Length: 2",
        "Content-Length: 2\r\nTransfer-Encoding: chunked",
        "Content-Length: +2",
        "Content-Length:",
        "Transfer-Encoding: gzip, chunked",
        "Content-Length : 2",
        "Content-Encoding: zstd",
        "X-Odd: one\r\n two",
        "X-Odd: one\nHost: b",
        "X-Odd: one\rContent-Length: 2",
        "X-Odd: one\0two",
        "X Odd: one",
        "no colon",
    ],
)
def test_what_servers_may_read_differently_is_not_plain(lines):
    assert not RequestHead.parse(f"POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n".encode()).is_plain
    assert not RequestHead.parse(b"POST / HTTP/1.1\nHost: a\n\n").is_plain
    assert not RequestHead.parse(b"POST\t/ HTTP/1.1\r\nHost: a\r\n\r\n").is_plain


def test_it_is_handed_on_line_by_line_but_for_how_long_the_connection_lasts():
    handed_on = RequestHead.parse(HEAD).handed_on(("Via: 1.1 me",), without=("Expect",))
    assert handed_on == (
        b"POST /api/blobs/sha256-1?x=/y HTTP/1.1\r\nHost: here\r\nTE: trailers\r\nX-Odd:  two  spaces \r\n"
        b"X-Odd: again\r\nConnection: TE, close\r\nVia: 1.1 me\r\n\r\n"
    )


def test_a_line_that_goes_on_stays_with_its_beginning():
    head = RequestHead.parse(b"GET / HTTP/1.1\r\nX-Long: one\r\n two\r\nHost: a\r\n\r\n")
    assert head.lines == (b"X-Long: one\r\n two", b"Host: a")


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01", b"GET /", b"GET / x HTTP/1.1"])
def test_what_is_no_http_has_no_method(first):
    assert RequestHead.parse(first + b"\r\n\r\n").method == ""


PIECES = st.sampled_from([b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b"a", b"Connection:", b"\xff"])


@given(st.lists(PIECES).map(b"".join))
def test_whatever_comes_is_a_head_that_can_be_handed_on(data):
    """To the next server it ends where it ended here: nothing of a body gets into it, and nothing of it into a body."""
    data += b"\r\n\r\n"
    size = end_of_head(data)
    handed_on = RequestHead.parse(data[:size]).handed_on(("Via: 1.1 me",))
    assert end_of_head(handed_on) == len(handed_on)
