"""Addresses, durations and limits as Ollama reads them."""

from __future__ import annotations

import math
import socket

import pytest

from pilotfish.daemon.front import FrontSettings, embedded, running, settings_from_env
from pilotfish.daemon.front.durations import parse_go_duration, parse_keep_alive
from pilotfish.daemon.front.settings import parse_host, parse_upstream
from pilotfish.daemon.front.streams import dumps, timestamp
from pilotfish.daemon.http.tunnel import ServerAddress
from pilotfish.hooks.errors import ConfigError, RequestError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("", "127.0.0.1", 11435),
        ("1.2.3.4", "1.2.3.4", 11435),
        (":1234", "", 1234),
        ("1.2.3.4:1234", "1.2.3.4", 1234),
        ("http://1.2.3.4", "1.2.3.4", 80),
        ("https://1.2.3.4", "1.2.3.4", 443),
        ("http://1.2.3.4:99/", "1.2.3.4", 99),
        ("example.com", "example.com", 11435),
        ("example.com:1234", "example.com", 1234),
        ("https://example.com:1234/path", "example.com", 1234),
        ("[::1]", "::1", 11435),
        ("[::1]:1337", "::1", 1337),
        ("::1", "::1", 11435),
        ("0.0.0.0", "0.0.0.0", 11435),
        (" 0.0.0.0:0 ", "0.0.0.0", 0),
        ("1.2.3.4:66000", "1.2.3.4", 11435),
        ("1.2.3.4:x", "1.2.3.4", 11435),
        ("1.2.3.4:" + "9" * 5000, "1.2.3.4", 11435),
    ],
)
def test_every_form_of_the_host_variable(text, host, port):
    assert parse_host(text) == (host, port)


def test_the_url_is_one_a_client_can_use():
    assert FrontSettings(host="0.0.0.0", port=5).url == "http://127.0.0.1:5"
    assert FrontSettings(host="::", port=5).url == "http://[::1]:5"
    assert FrontSettings(host="", port=5).url == "http://127.0.0.1:5"


def test_ollamas_variables_count_and_our_own_win():
    settings = settings_from_env(
        {
            "OLLAMA_HOST": "9.9.9.9:9",  # Ollama's own address, not ours
            "OLLAMA_CONTEXT_LENGTH": "8192",
            "OLLAMA_KEEP_ALIVE": "-1",
            "OLLAMA_MAX_LOADED_MODELS": "1",
            "PILOTFISH_MAX_LOADED_MODELS": "2",
            "OLLAMA_LOAD_TIMEOUT": "0",
            "OLLAMA_NUM_PARALLEL": "4",
            "OLLAMA_MAX_QUEUE": "7",
        }
    )
    assert (settings.host, settings.port) == ("127.0.0.1", 11435)
    assert (settings.num_ctx, settings.max_loaded) == (8192, 2)
    assert (settings.keep_alive, settings.load_timeout) == (math.inf, math.inf)
    assert (settings.parallel, settings.max_queue) == (4, 7)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PILOTFISH_KEEP_ALIVE", "soon"),
        ("OLLAMA_KEEP_ALIVE", "1d"),
        ("OLLAMA_KEEP_ALIVE", "--5"),
        ("OLLAMA_CONTEXT_LENGTH", "8k"),
        ("OLLAMA_CONTEXT_LENGTH", "9" * 5000),
        ("OLLAMA_NUM_PARALLEL", "many"),
        ("OLLAMA_MAX_QUEUE", "-1"),
        ("OLLAMA_ORIGINS", "http://*.*"),
    ],
)
def test_a_wrong_variable_is_named(variable, value):
    with pytest.raises(ConfigError, match=variable):
        settings_from_env({variable: value})


def test_quotes_around_a_value_do_not_count():
    settings = settings_from_env(
        {
            "PILOTFISH_HOST": '"127.0.0.1:11777"',
            "OLLAMA_KEEP_ALIVE": '"-1"',
            "OLLAMA_CONTEXT_LENGTH": "'1024'",
            "OLLAMA_ORIGINS": '"*"',
        }
    )
    assert (settings.host, settings.port, settings.num_ctx) == ("127.0.0.1", 11777, 1024)
    assert (settings.keep_alive, settings.origins[0]) == (math.inf, "*")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5m", 300), ("1h30m", 5400), ("1.5h", 5400), ("250ms", 0.25), ("10us", 1e-5), ("-1m", -60), ("0", 0), ("+2s", 2)],
)
def test_go_durations(text, seconds):
    assert parse_go_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-1", 'time: missing unit in duration "-1"'),
        ("300", 'time: missing unit in duration "300"'),
        ("", 'time: invalid duration ""'),
        ("m", 'time: invalid duration "m"'),
        ("5 minutes", 'time: unknown unit " minutes" in duration "5 minutes"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("\N{ARABIC-INDIC DIGIT ONE}s", 'time: invalid duration "\N{ARABIC-INDIC DIGIT ONE}s"'),
        ("9999999999999s", 'time: invalid duration "9999999999999s"'),  # more than Go's durations hold
    ],
)
def test_a_wrong_duration_is_told_in_gos_words(text, message):
    with pytest.raises(RequestError) as caught:
        parse_go_duration(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (0, 0),
        (10, 10),
        (0.5, 0.5),
        (-1, math.inf),
        ("-1s", math.inf),
        ("0", 0),
        (9_000_000_000, 9e9),
        (1e12, math.inf),  # more than Go's durations hold
    ],
)
def test_keep_alive(value, seconds):
    assert parse_keep_alive(value) == seconds


def test_timestamps_are_gos():
    assert timestamp(0) == "1970-01-01T00:00:00Z"
    assert timestamp(1.5) == "1970-01-01T00:00:01.5Z"
    assert timestamp(math.inf) > "2300"


def test_text_that_is_no_unicode_is_escaped_and_not_lost():
    assert dumps({"a": "é\x00"}) == '{"a":"é\\u0000"}'
    assert dumps({"a": "\ud83d"}) == '{"a":"\\ud83d"}'


async def test_a_taken_port_is_named_with_the_remedy(store):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"127\.0\.0\.1:{port} is in use; .*PILOTFISH_HOST=127\.0\.0\.1:{port + 1}"
        ):
            async with running(store, FrontSettings(port=port)):
                pass


async def test_an_address_of_another_machine_is_refused(store):
    with pytest.raises(ConfigError, match=r"cannot listen on 203\.0\.113\.1:0"):
        async with running(store, FrontSettings(host="203.0.113.1", port=0)):
            pass


async def test_an_embedded_front_has_a_port_of_its_own(store):
    async with embedded(store) as one, embedded(store) as other:
        assert one != other
        assert one.startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("http://127.0.0.1:11434", "127.0.0.1", 11434),
        ("http://box", "box", 80),
        ("box", "box", 11434),
        (":1234", "127.0.0.1", 1234),
        ("0.0.0.0", "127.0.0.1", 11434),
        ("http://[::1]:5/", "::1", 5),
    ],
)
def test_an_upstream_in_the_forms_that_ollama_host_has(text, host, port):
    assert parse_upstream(text) == ServerAddress(host, port)


@pytest.mark.parametrize(
    "text", ["https://box", "http://", "http://box:0", "http://box:x", "http://box/path", "ftp://a"]
)
def test_what_is_no_upstream_says_how_to_write_one(text):
    with pytest.raises(ConfigError, match="http://"):
        parse_upstream(text)
