"""A name for the account, out of what programs say of themselves."""

from __future__ import annotations

import pytest

from pilotfish.daemon.http.client_program import HEADER, client_program


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("ollama-python/0.6.1 (x86_64 linux) Python/3.11.2", "ollama-python"),
        ("OpenAI/Python 1.60.0", "OpenAI/Python"),
        ("curl/7.88.1", "curl"),
        ("Go-http-client/1.1", "Go-http-client"),
        ("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36", "a browser"),
        ("", "unknown"),
        ("x" * 500, "x" * 40),
        ("a\x1b[31mb\u202e", "a[31mb"),
    ],
)
def test_names(said, name):
    assert client_program({"User-Agent": said}) == name


def test_a_server_of_ours_says_for_whom_it_asks():
    assert client_program({"User-Agent": "Python/3.11 aiohttp/3.10", HEADER: "curl"}) == "curl"
