"""llama-server's HTTP protocol, from the client's side."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any

import aiohttp

from pilotfish.daemon.front.client_name import naming_client
from pilotfish.daemon.front.errors import StatusError
from pilotfish.hooks.errors import EngineError

MAX_LINE = 8 << 20  # bytes of one event, as Ollama allows


class ConnectionLost(EngineError):
    """The runner hung up, or nobody listens."""


def new_session(*, reuse: bool = True) -> aiohttp.ClientSession:
    """A session for talking to runners: no limit on time (a generation may be long) nor on connections.

    Without `reuse` every request has a connection of its own, as a stock llama-server needs: it ends the connection of
    a streamed answer, and says that it keeps it.
    """
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        connector=aiohttp.TCPConnector(limit=0, force_close=not reuse),
        read_bufsize=MAX_LINE,
        trust_env=False,
        trace_configs=[naming_client()],
    )


class RunnerClient:
    """Requests to one runner. Leaving any of them early closes its connection, which frees the runner's slot.

    A refusal of the runner raises StatusError with its status and words; a broken connection raises ConnectionLost.
    """

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._base = f"http://127.0.0.1:{port}"

    async def healthy(self) -> bool:
        """Whether the model is loaded. False as well when nobody listens yet."""
        try:
            async with self._session.get(f"{self._base}/health", timeout=aiohttp.ClientTimeout(total=5)) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def apply_template(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt that the model's chat template makes of `messages`."""
        answer = await self._post("/apply-template", {"messages": list(messages)})
        return str(answer["prompt"])

    async def prepare_chat(self, chat: Mapping[str, Any]) -> dict[str, Any]:
        """The prompt of a chat, and under `pilotfish` how its answer is read."""
        return await self._post("/apply-template", {**chat, "answer_format": True})

    async def explain(self) -> dict[str, Any]:
        """What the runner's controller knows and what became of its drafters; see `Generator.explain`."""
        with _lost_connections():
            async with self._session.get(f"{self._base}/pilotfish/explain") as response:
                await _raise_for_status(response)
                found: dict[str, Any] = await response.json()
                return found

    async def tokenize(self, text: str, *, add_special: bool = True) -> list[int]:
        """Token ids of `text`, with special tokens recognised, as `/completion` would read it."""
        body = {"content": text, "add_special": add_special, "parse_special": True}
        return list((await self._post("/tokenize", body))["tokens"])

    async def completion(self, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a streamed completion, the last of which has `stop` true."""
        stopped = False
        with _lost_connections():
            async with self._session.post(f"{self._base}/completion", json={**body, "stream": True}) as response:
                await _raise_for_status(response)
                async for event in _events(response):
                    stopped = stopped or bool(event.get("stop"))
                    yield event
        if not stopped:
            raise ConnectionLost("the stream ended before the answer did")

    async def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with _lost_connections():
            async with self._session.post(self._base + path, json=body) as response:
                await _raise_for_status(response)
                answer = await response.json(content_type=None)
        if not isinstance(answer, dict):
            raise StatusError(500, f"the runner answered {path} with {type(answer).__name__}, not an object")
        return answer


@contextlib.contextmanager
def _lost_connections() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, ConnectionError) as error:
        raise ConnectionLost(str(error) or type(error).__name__) from error


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[dict[str, Any], None]:
    async for line in response.content:
        failed = line.startswith(b"error:")  # a failure after the first event
        text = line.removeprefix(b"error:").removeprefix(b"data:").strip()
        if not text.startswith(b"{"):  # blank lines, comments, [DONE]
            continue
        event = json.loads(text)
        if failed or "error" in event:
            raise _refusal(500, event)
        yield event


async def _raise_for_status(response: aiohttp.ClientResponse) -> None:
    if response.status >= 400:
        raise _refusal(response.status, await response.text())


def _refusal(status: int, answer: Any) -> StatusError:
    """llama-server's error object as an exception; any other text as it is."""
    if isinstance(answer, str):
        try:
            answer = json.loads(answer)
        except ValueError:
            return StatusError(status, answer.strip() or f"the runner answered with status {status}")
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if isinstance(error, dict):
        code = error.get("code")
        return StatusError(code if isinstance(code, int) and 400 <= code < 600 else status, str(error.get("message")))
    return StatusError(status, str(error))
