"""Reading messages from a person at a terminal: editing, several lines, and what was typed before."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import History

from pilotfish.manifests.remembered import write_atomically

FILE_NAME = "chat_history.jsonl"
KEPT = 500  # lines

Ask = Callable[[str], Awaitable[str]]  # a prompt -> what is typed after it; raises EOFError and KeyboardInterrupt

_QUOTES = '"""'
_SYSTEM = "/set system "


@dataclass(frozen=True, slots=True)
class TypedText:
    """What was typed: a message, or a command, which begins with `/`."""

    text: str
    command: bool = False


class ChatInput:
    """Messages and commands, one after the other. `ask` reads a line."""

    def __init__(self, ask: Ask, tell: Callable[[str], None]) -> None:
        self._ask, self._tell = ask, tell

    async def read(self) -> TypedText | None:
        """The next one that is not empty; None at the end."""
        while True:
            try:
                entry = await self._whole(await self._ask(">>> "))
            except EOFError:
                return None
            except KeyboardInterrupt:
                self._tell("Ctrl-D or /bye leaves.")
                continue
            if entry.text.strip():
                return entry

    async def _whole(self, line: str) -> TypedText:
        """`line`, and those that follow until its quotes are closed."""
        start = _SYSTEM if line.lstrip().startswith(_SYSTEM) else ""
        opened = line.lstrip().removeprefix(start).lstrip()
        if not opened.startswith(_QUOTES):
            return TypedText(line, line.startswith("/"))
        text = opened.removeprefix(_QUOTES)
        while not text.rstrip().endswith(_QUOTES):
            text += "\n" + await self._ask("... ")
        return TypedText(start + text.rstrip().removesuffix(_QUOTES), bool(start))


class TypedHistory(History):
    """What was typed, in a file that only this user may read; the newest `KEPT`. `keep` False remembers no more."""

    def __init__(self, file: Path, *, keep: bool = True) -> None:
        super().__init__()
        self.keep = keep
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        """Newest first, as prompt_toolkit asks for them."""
        try:
            lines = self._file.read_bytes().splitlines(keepends=True)
            if len(lines) > 2 * KEPT:
                write_atomically(self._file, b"".join(lines[-KEPT:]))
        except OSError:
            return
        for line in lines[: -KEPT - 1 : -1]:
            with contextlib.suppress(ValueError):
                if isinstance(text := json.loads(line), str):
                    yield text

    def append_string(self, string: str) -> None:
        """Remember, unless that was switched off."""
        if self.keep:
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Write; a file that cannot be written is no reason to end a chat."""
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(json.dumps(string).encode() + b"\n")


def asking(history: TypedHistory) -> Ask:
    """Reads lines with an editor, or as they come where the answers do not go to a terminal."""
    if not sys.stdout.isatty():
        return lambda prompt: asyncio.to_thread(input)
    session: PromptSession[str] = PromptSession(history=history, enable_suspend=True)

    async def ask(prompt: str) -> str:
        return await session.prompt_async(prompt, placeholder=_hint if prompt == ">>> " else "")

    return ask


def _hint() -> FormattedText:
    """What an empty line shows, until it is left behind."""
    return FormattedText([] if get_app().is_done else [("ansibrightblack", "Type a message; /? lists commands")])
