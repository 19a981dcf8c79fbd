"""Our runner and a stock llama-server with the chat template of a family of models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.daemon.chat.answers.written import TOOLS
from tests.daemon.chat.family_templates import FAMILIES, OPEN_TAG, TAGGED_THINKING, THINKING
from tests.daemon.runner.settings import SETTINGS
from tests.server_processes import RUNNER, running, stock_server

TEMPLATES = {**FAMILIES, "thinking": THINKING, "tagged, thinking": TAGGED_THINKING, "open": OPEN_TAG}
TOOLS_JSON = [tool.to_json() for tool in TOOLS]


@contextmanager
def both(model, family, state, folder) -> Iterator[tuple]:
    """Our runner and stock, with that family's template."""
    (folder / "template.jinja").write_text(TEMPLATES[family])
    flags = (*SETTINGS, "--chat-template-file", str(folder / "template.jinja"))
    with (
        running(RUNNER, model, folder / "ours", *flags, env=state) as ours,
        running(stock_server(), model, folder / "stocks", *flags) as stocks,
    ):
        yield ours, stocks


def streamed(server, **body):
    """The message that a stream makes, and why it ended."""
    message, reason = {"content": "", "reasoning_content": "", "calls": []}, None
    with server.http.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: {")]
    for choice in (choice for line in lines for choice in json.loads(line)["choices"]):
        delta, reason = choice["delta"], choice["finish_reason"] or reason
        message["content"] += delta.get("content") or ""
        message["reasoning_content"] += delta.get("reasoning_content", "")
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(message["calls"]):
                message["calls"].append([call["function"]["name"], ""])
            message["calls"][call["index"]][1] += call["function"].get("arguments", "")
    return message, reason
