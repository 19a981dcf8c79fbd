"""Requests that two servers must answer alike, down to the headers for browsers."""

from __future__ import annotations

import json

import httpx

from tests.e2e.ollama_server import MODEL


async def answers_of(url, requests):
    """Of each answer: the request, status, media type, the headers for browsers, and the body."""
    found = []
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        for method, path, headers, body in requests:
            answer = await client.request(method, path, headers=headers, content=body)
            media = answer.headers.get("content-type", "").partition(";")[0]
            browser = {name: value for name, value in answer.headers.items() if name.startswith("access-control")}
            found.append((method, path, answer.status_code, media, browser, answer.text))
    return found


ORIGIN = {"Origin": "http://localhost:3000"}
FOREIGN = {"Origin": "https://example.com"}
PREFLIGHT = {**ORIGIN, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
SAME_IN_BOTH = [
    *(
        ("POST", path, {}, json.dumps({"model": MODEL, "keep_alive": value}))
        for path in ("/api/generate", "/api/chat")
        for value in ("-1", "5", "soon", "", "1x")
    ),
    *(("OPTIONS", path, {}, None) for path in ("/api/generate", "/api/chat", "/api/tags", "/", "/nowhere")),
    *(("OPTIONS", "/api/generate", headers, None) for headers in (ORIGIN, FOREIGN, PREFLIGHT)),
    ("GET", "/api/version", FOREIGN, None),
    ("GET", "/api/generate", {}, None),
    ("POST", "/api/generate", {}, ""),
    ("POST", "/api/generate", {}, '{"model": "no-such-model"}'),
    ("HEAD", "/", {}, None),
]
