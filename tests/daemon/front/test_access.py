"""Browsers and host names: the answers of Ollama's own server (gin with its CORS middleware), read in its source."""

from __future__ import annotations

import pytest

from pilotfish.daemon.front.access import OriginRules
from pilotfish.daemon.front.settings import default_origins, settings_from_env


async def test_options_without_an_origin_is_no_preflight(front):
    async with front.http.options(f"{front.url}/api/generate") as response:
        assert (response.status, await response.text()) == (405, "405 method not allowed")
        assert response.headers["Allow"] == "POST"


async def test_options_by_a_local_name_is_204_without_a_body(front):
    async with front.http.options(f"{front.url}/api/generate", headers={"Host": "localhost:11435"}) as response:
        assert (response.status, await response.read()) == (204, b"")


async def test_a_preflight_from_an_allowed_origin(front):
    headers = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"}
    async with front.http.options(f"{front.url}/api/generate", headers=headers) as response:
        assert (response.status, await response.read()) == (204, b"")
        assert response.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"
        assert response.headers["Access-Control-Allow-Methods"] == "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS"
        assert response.headers["Access-Control-Allow-Headers"].startswith("Authorization,Content-Type,User-Agent")
        assert response.headers["Access-Control-Max-Age"] == "43200"
        vary = ["Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers"]
        assert response.headers.getall("Vary") == vary


@pytest.mark.parametrize("method", ["OPTIONS", "GET"])
async def test_an_unknown_origin_is_refused_on_every_route(front, method):
    for path in ("/api/tags", "/api/nothing"):
        async with front.http.request(method, front.url + path, headers={"Origin": "https://evil.example"}) as response:
            assert (response.status, await response.read()) == (403, b"")
            assert "Content-Type" not in response.headers


async def test_answers_and_streams_to_an_allowed_origin_carry_it(front):
    headers = {"Origin": "app://obsidian.md"}
    for body in ({"model": "tiny", "prompt": "echo:x"}, {"model": "nope"}):
        async with front.post("/api/generate", body, headers=headers) as response:
            assert response.headers["Access-Control-Allow-Origin"] == "app://obsidian.md"
            assert response.headers.getall("Vary") == ["Origin"]


async def test_the_same_origin_needs_no_permission(front):
    async with front.http.get(f"{front.url}/api/version", headers={"Origin": front.url}) as response:
        assert response.status == 200
        assert "Access-Control-Allow-Origin" not in response.headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:11435", 200),
        ("192.168.1.5", 200),
        ("[::1]:11435", 200),
        ("box.local", 200),
        ("localhost", 200),
        ("evil.example", 403),
        ("8.8.8.8", 403),
    ],
)
async def test_a_loopback_server_answers_only_to_names_of_this_network(front, host, status):
    async with front.http.get(f"{front.url}/api/version", headers={"Host": host}) as response:
        assert response.status == status


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost", True),
        ("https://127.0.0.1:8080", True),
        ("http://0.0.0.0:1", True),
        ("vscode-webview://abc", True),
        ("http://localhost.evil.example", False),
        ("chrome-extension://abc", False),
        ("null", False),
    ],
)
def test_the_default_origins(origin, allowed):
    assert OriginRules(default_origins()).allows(origin) is allowed


def test_more_origins_from_the_environment_and_all_of_them():
    rules = OriginRules(settings_from_env({"OLLAMA_ORIGINS": "chrome-extension://*, https://chat.example"}).origins)
    assert rules.allows("chrome-extension://abc")
    assert rules.allows("https://chat.example")
    everyone = OriginRules(settings_from_env({"PILOTFISH_ORIGINS": "*"}).origins)
    assert everyone.headers("https://any.example", preflight=False) == {"Access-Control-Allow-Origin": "*"}
