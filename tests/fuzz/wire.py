"""Servers that are sent broken requests, over real sockets, each in a process of its own.

A request must be answered, with any status but 500 (501: not supported here), no exception may be logged that nobody
expected, and the process may not use five seconds of the processor for it. Time by the clock is no measure: something
else may have the machine.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psutil

from pilotfish.daemon.processes.parent_death import tied_environment
from tests.fuzz.campaign import SECONDS, Case, Fault, Usage
from tests.fuzz.mutations import Mutator, encode

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds without a byte of an answer that is still one on a busy machine
UNFINISHED = 0.1  # seconds that a request with a broken head is given: the server may well wait for the rest of it
TROUBLE = (b"Task exception was never retrieved", b"Unclosed")
REFUSED = b"\naiohttp.http_exceptions."  # how the log ends a traceback about what is no HTTP


@dataclass(frozen=True, slots=True)
class Ask:
    """A sound request. `first` is sent before it on the same connection, and its answer's `session` put into `path`;
    of an `endless` answer only the first line is read."""

    path: str
    body: Any = None
    method: str = "POST"
    first: Ask | None = None
    endless: bool = False


@dataclass(frozen=True, slots=True)
class Server:
    """What a server is asked. `names` are fields that `asks` do not have."""

    name: str
    asks: Sequence[Ask]
    names: Sequence[str] = ()
    held: Ask | None = None  # asked once, on a connection that stays open
    by_path: Mapping[str, Ask] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_path", {f"{ask.method} {ask.path}": ask for ask in self.asks})


CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi {there}"}]
CALLED = [
    *CHAT,
    {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "id": "a", "function": {"name": "f", "arguments": '{"n": 1}'}}]},
    {"role": "tool", "content": "7", "tool_call_id": "a", "name": "f"},
]  # fmt: skip
TOOLS = [{"type": "function", "function": {"name": "f", "description": "any", "parameters": {"type": "object"}}}]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
OPTIONS = {"num_predict": 8, "temperature": 0.5, "seed": 3, "stop": ["##"], "top_k": 5, "speculate": True}
SAMPLING = {
    "n_predict": 8, "temperature": 0.7, "seed": 7, "top_k": 4, "top_p": 0.9, "stop": ["zz"], "n_probs": 2,
    "logit_bias": [[5, 1.0], ["a", False]], "repeat_penalty": 1.1, "cache_prompt": True,
}  # fmt: skip
TARGET = {
    "name": "fake:latest",
    "weights": [{"digest": "sha256:" + "0" * 64, "size": 5}],
    "tokenizer": {"fingerprint": "fake", "model": "fake", "n_vocab": 258, "eos": 1},
}
WANTED = {"protocol": 1, "target": TARGET, "n_ctx": 512}
OPEN = Ask("/v1/draft/open", {**WANTED, "speaks": "ids", "prompt": [5, 6, 7, 5, 6]})
REGISTRATION = {
    "pid": 7, "port": 4711, "model": "tiny:latest", "started": 1.5, "digest": "sha256:ab", "lane": "bf16-f16",
    "parity": "lane", "widths": [1, 2], "drafters": ["suffix"], "aliases": ["other:latest"],
}  # fmt: skip
TOTALS = {
    "requests": 1, "committed": 9, "drafted": 8, "accepted": 7, "rounds": 3, "seconds": 0.5, "saved_seconds": 0.1,
    "dropped": {"suffix": "raised"},
}  # fmt: skip
REPORT = {
    "totals": TOTALS, "state": "active", "reason": "", "drafters": ["suffix"], "problems": ["none"],
    "pool": {"suffix": {"state": "ready", "about": ""}},
}  # fmt: skip

FRONT = Server(
    "front",
    (
        Ask("/api/generate", {"model": "tiny", "prompt": "Hello", "options": OPTIONS, "keep_alive": "5m"}),
        Ask("/api/generate", {"model": "bare", "prompt": "a", "raw": True, "options": {"num_ctx": 512}}),
        Ask("/api/chat", {"model": "tiny", "messages": CHAT, "options": OPTIONS, "format": SCHEMA, "stream": False}),
        Ask("/api/show", {"model": "tiny", "verbose": True}),
        Ask("/v1/completions", {"model": "tiny", "prompt": "a b", "max_tokens": 4, "seed": 1, "logprobs": 1}),
        Ask("/v1/chat/completions", {"model": "tiny", "messages": CALLED, "max_tokens": 4, "tools": TOOLS, **STREAMED}),
    ),
    ("suffix", "system", "template", "context", "images", "format", "think", "logprobs", "top_logprobs", "tools",
     "keep_alive", "truncate", "num_ctx", "num_keep", "min_p", "typical_p", "repeat_last_n", "mirostat", "stop",
     "frequency_penalty", "response_format", "reasoning_effort", "n", "logit_bias", "return_tokens",
     "tool_choice", "parallel_tool_calls"),
)  # fmt: skip
RUNNER = Server(
    "runner",
    (
        Ask("/completion", {"prompt": "Hello Hello", **SAMPLING}),
        Ask("/completion", {"prompt": [[5, 6], [7, "a"]], "stream": True, **SAMPLING}),
        Ask("/v1/completions", {"prompt": "a b a", "max_tokens": 4, "stream": True, "logprobs": 2}),
        Ask("/v1/chat/completions", {"messages": CHAT, "max_tokens": 4, "json_schema": SCHEMA}),
        Ask("/chat/completions", {"messages": CALLED, "tools": TOOLS, "max_tokens": 4, **STREAMED}),
        Ask("/apply-template", {"messages": CHAT, "chat_template_kwargs": {"date_string": "today"}}),
        Ask("/tokenize", {"content": "Hello", "add_special": True, "with_pieces": True}),
        Ask("/detokenize", {"tokens": [5, 6, 7]}),
    ),
    ("grammar", "json_schema", "samplers", "min_keep", "n_keep", "mirostat", "dry_multiplier", "lora",
     "preserved_tokens", "response_fields", "timings_per_token", "return_tokens", "t_max_predict_ms", "n_indent",
     "tool_choice", "parallel_tool_calls", "reasoning_format", "chat_template_kwargs", "response_format",
     "max_tokens", "top_logprobs", "stream_options", "continue_final_message", "sse_ping_interval", "ignore_eos"),
)  # fmt: skip
DRAFT = Server(
    "draft",
    (
        Ask("/v1/draft", method="GET"),
        Ask("/v1/draft/load", WANTED),
        OPEN,
        Ask(
            "/v1/draft/sessions/{session}",
            {"steps": [["commit", [7, 5]], ["propose", 4], ["rollback"], ["commit", [6]], ["propose", 2]]},
            first=OPEN,
        ),
        Ask("/v1/draft/sessions/{session}", {"steps": [["propose", 3], ["close"]]}, first=OPEN),
    ),
    ("manifest_digest", "format", "architecture", "quantization", "bos", "add_bos", "path"),
)
CONTROL = Server(
    "control",
    (
        Ask("/v1/runners", REGISTRATION, endless=True),
        Ask("/v1/runners/1/report", REPORT),
        Ask("/v1/runners/1/live", {"events": [{"kind": "round", "request": 1, "pieces": [{"text": "a"}]}]}),
        Ask("/v1/status", method="GET"),
        Ask("/pilotfish/api/switch", {"enabled": False, "model": "smollm2:135m"}),
        Ask("/pilotfish/api/playground", {"runner": "1", "prompt": "a b", "tokens": 4}),
        Ask("/pilotfish/api/state", method="GET"),
    ),
    held=Ask("/v1/runners", REGISTRATION, endless=True),
)
SERVERS = (FRONT, RUNNER, DRAFT, CONTROL)


class Wire:
    """A running server as a target. `log` is what its process writes."""

    def __init__(self, server: Server, process: psutil.Popen, url: str, log: Path) -> None:
        self.name = server.name
        self._server = server
        self._process = process
        self._url = url
        self._log = log
        self._read = 0
        self._held = contextlib.ExitStack()
        if server.held:
            self._held.enter_context(self._connected()).sendall(request(server.held, encode(server.held.body)))

    def close(self) -> None:
        """Let go of what is held."""
        self._held.close()

    def make(self, random: Random) -> Case:
        """A broken body of one of the requests; once in twelve times a broken head."""
        mutator = Mutator(random, self._server.names)
        key = random.choice(list(self._server.by_path))
        ask = random.choice([ask for ask in self._server.asks if f"{ask.method} {ask.path}" == key])
        if random.random() < 1 / 12:
            return Case(key, mutator.raw(request(ask, encode(ask.body))), whole=True)
        return Case(key, mutator.json(ask.body))

    def take(self, case: Case) -> None:
        """Send it, read the answer, and see what it cost."""
        before = self._seconds()
        try:
            status, body = self._answer(case)
        except (OSError, http.client.HTTPException) as error:
            status, body = 0, b""
            self._alive(case, error)
        used, said = self._seconds() - before, self._trouble()
        if used > SECONDS:
            raise Fault("more than 5 s of the processor", f"{used:.1f} s", slow=True)
        if status == 500 or b'"code":500' in body or b'"code": 500' in body:
            raise Fault(f"500: {_brief(body)}", body[:1000].decode("utf-8", "replace"))
        if said:
            raise Fault(f"logged: {said.strip().splitlines()[-1][:150]}", said[-3000:])

    def probe(self) -> None:
        """Every sound request is answered by 200."""
        for ask in self._server.asks:
            status, body = self._exchange(ask, request(ask, encode(ask.body)), PATIENCE)
            if status != 200:
                raise Fault(f"afterwards {ask.path} is answered by {status}", body[:500].decode("utf-8", "replace"))

    def usage(self) -> Usage:
        """Of the server's own process."""
        return Usage(self._process.memory_info().rss, self._process.num_fds())

    def _answer(self, case: Case) -> tuple[int, bytes]:
        ask = self._server.by_path[case.to]
        if case.whole:
            try:
                return self._exchange(ask, case.data, UNFINISHED)
            finally:  # what the server has to say about the end of that connection belongs to this case
                self._exchange(self._server.asks[0], request(self._server.asks[0], b"{}"), PATIENCE)
        return self._exchange(ask, request(ask, case.data), PATIENCE)

    def _exchange(self, ask: Ask, data: bytes, patience: float) -> tuple[int, bytes]:
        with self._connected() as connection:
            if ask.first:
                connection.settimeout(PATIENCE)
                connection.sendall(request(ask.first, encode(ask.first.body)))
                _, opened = read(connection)
                session = json.loads(opened).get("session", "none")
                data = data.replace(b"{session}", str(session).encode())
            connection.settimeout(patience)
            connection.sendall(data)
            return read(connection, endless=ask.endless)

    def _connected(self) -> socket.socket:
        if self._url.startswith("unix:"):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self._url.removeprefix("unix:"))
            return connection
        host, port = self._url.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)))

    def _alive(self, case: Case, error: Exception) -> None:
        """No answer is one to a head that makes no sense; for all others it is a fault."""
        if self._process.poll() is not None:
            raise Fault(
                f"the process ended with {self._process.returncode}", self._log.read_text(errors="replace")[-3000:]
            )
        if not case.whole:
            raise Fault(f"no answer: {type(error).__name__}", str(error), slow=isinstance(error, TimeoutError))

    def _seconds(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def _trouble(self) -> str:
        """What was logged since the last look, if it is nothing that should be."""
        with self._log.open("rb") as file:
            file.seek(self._read)
            said = file.read()
        self._read += len(said)
        unexpected = said.count(b"Traceback") > said.count(REFUSED) or any(mark in said for mark in TROUBLE)
        return said.decode("utf-8", "replace") if unexpected else ""


@contextlib.contextmanager
def serving(server: Server, folder: Path) -> Iterator[Wire]:
    """The server, started in a process of its own."""
    log = folder / f"{server.name}.log"
    words = [sys.executable, "-m", "tests.fuzz.servers", server.name, str(folder)]
    with log.open("wb") as file:
        process = psutil.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            cwd=ROOT,
            env=tied_environment(),
        )
    try:
        url = process.stdout.readline().decode().strip()
        assert url, log.read_text()
        wire = Wire(server, process, url, log)
        with contextlib.closing(wire):
            wire.probe()
            yield wire
    finally:
        process.terminate()
        process.wait(60)
        process.stdin.close()
        process.stdout.close()


def request(ask: Ask, body: bytes) -> bytes:
    """A request as it goes over the wire."""
    head = f"{ask.method} {ask.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def read(connection: socket.socket, *, endless: bool = False) -> tuple[int, bytes]:
    """Status and body of an answer; of an endless one only the first line."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    with response:
        endless = endless and response.status == 200
        return response.status, response.readline() if endless else response.read()


def _brief(body: bytes) -> str:
    """What an error says, without what differs from one request to the next."""
    text = body.decode("utf-8", "replace")
    with contextlib.suppress(ValueError, AttributeError):
        error = json.loads(text)["error"]
        text = error.get("message", "") if isinstance(error, dict) else error
    return " ".join(str(text).split()[:7])[:100]
