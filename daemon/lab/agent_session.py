"""A working session as an agent has one: files are read, edited and returned, tools run, data repeated, texts written.

Every turn's answer goes into the next turn's prompt, as with any chat client, so prompts grow and are mostly cached.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from pilotfish.daemon.lab.floor_servers import OllamaReply
from pilotfish.daemon.lab.workloads import Mode
from pilotfish.hooks.errors import UsageError

MODES = (Mode("greedy", {"temperature": 0, "seed": 1}), Mode("temperature 0.2", {"temperature": 0.2, "seed": 42}))


@dataclass(frozen=True, slots=True)
class AgentTurn:
    """What the user says, and whether a good answer repeats much of what was said before."""

    name: str
    repeats: bool
    text: str


@dataclass(frozen=True, slots=True)
class AgentSession:
    """The turns of a session, in order, and the system message before them."""

    system: str
    turns: tuple[AgentTurn, ...]


@dataclass(frozen=True, slots=True)
class Worked:
    """A session as its client saw it: a reply for each turn, and the seconds of the whole."""

    replies: tuple[OllamaReply, ...]
    seconds: float

    @property
    def tokens(self) -> int:
        return sum(reply.tokens for reply in self.replies)

    @property
    def first(self) -> float:
        """Seconds to the first token, the median of all turns."""
        return median(reply.first for reply in self.replies)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(reply.text for reply in self.replies)

    def rate(self, session: AgentSession, *, repeats: bool) -> float:
        """Tokens a second after the first one, over the turns that repeat or over those that do not."""
        chosen = [reply for turn, reply in zip(session.turns, self.replies, strict=True) if turn.repeats == repeats]
        seconds = sum(reply.seconds - reply.first for reply in chosen)
        return sum(reply.tokens - 1 for reply in chosen) / seconds if seconds > 0 else 0.0


class Chats(Protocol):
    """A server to chat with."""

    async def chat(self, model: str, messages: list[dict[str, str]], options: Mapping[str, Any]) -> OllamaReply:
        """The answer to the last of the messages."""


async def work(server: Chats, model: str, session: AgentSession, options: Mapping[str, Any]) -> Worked:
    """Go through the session. Raises WorldError."""
    messages = [{"role": "system", "content": session.system}]
    replies, started = list[OllamaReply](), time.monotonic()
    for turn in session.turns:
        messages.append({"role": "user", "content": turn.text})
        replies.append(await server.chat(model, messages, options))
        messages.append({"role": "assistant", "content": replies[-1].text})
    return Worked(tuple(replies), time.monotonic() - started)


def load_session(path: Path | None = None) -> AgentSession:
    """The session in `path`, or the one that comes with pilotfish. Raises UsageError naming the file."""
    source = path or resources.files("pilotfish.daemon.lab").joinpath("agent.json")
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
        return AgentSession(str(document.get("system", "")), _turns(document["turns"]))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        shape = '{"system", "turns": [{"name", "repeats", "text"}, ...]}'
        raise UsageError(f"{path}: not a session ({error!r}); it needs {shape}") from error


def _turns(entries: Sequence[Mapping[str, Any]]) -> tuple[AgentTurn, ...]:
    turns = tuple(
        AgentTurn(str(entry["name"]), bool(entry.get("repeats", False)), str(entry["text"])) for entry in entries
    )
    if not turns:
        raise ValueError("no turns")
    return turns
