"""`pilotfish run`: chat with a model in the terminal, like `ollama run`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from pilotfish.daemon.cli.console import end_unread, err, harmless, write_words
from pilotfish.daemon.lab.asking import Client
from pilotfish.hooks.errors import PilotfishError

DRAFTED = "cyan"
THOUGHT = "bright_black"


@dataclass
class TerminalChat:
    """One conversation: what is sent with every request, and what was said so far."""

    model: str
    options: dict[str, Any]
    show_drafts: bool
    messages: list[dict[str, str]] = field(default_factory=list)


@click.command("run")
@click.argument("model")
@click.argument("words", metavar="[PROMPT]...", nargs=-1)
@click.option("--show-drafts", is_flag=True, help="Show accepted draft tokens in another colour.")
@click.option("--speculate/--no-speculate", default=True, help="Without speculation the tokens are the same.")
@click.option("--system", help="A system message.")
@click.option("--temperature", type=float, help="0 is greedy.")
@click.option("--seed", type=int, help="The same seed gives the same answer.")
@click.option("--num-predict", type=int, help="At most this many tokens.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
def command(
    model: str,
    words: tuple[str, ...],
    show_drafts: bool,
    speculate: bool,
    system: str | None,
    root: Path | None,
    **sampling: float | int | None,
) -> None:
    """Run a prompt, or chat when none is given. Uses the server at $PILOTFISH_HOST, or starts one for itself.

    The words of the prompt need no quotes. What is piped in stands before them: `cat notes | pilotfish run m sum up`.
    """
    options = {"speculate": speculate, **{name: value for name, value in sampling.items() if value is not None}}
    chat = TerminalChat(model, options, show_drafts)
    if system:
        chat.messages.append({"role": "system", "content": system})
    prompt = _prompt(words)
    if prompt is not None and not prompt.strip():
        err.print("There is no question: the input is empty, and no prompt was given.", markup=False)
        return
    try:
        asyncio.run(_run(chat, prompt, root))
    except BrokenPipeError:
        end_unread()


def _prompt(words: Sequence[str]) -> str | None:
    """What is piped in, then the words, as `ollama run` joins them; None where a person may type instead."""
    if sys.stdin is not None and not sys.stdin.isatty():
        piped = sys.stdin.buffer.read().decode("utf-8", "replace")
        return " ".join((piped, *words) if piped else words)
    return " ".join(words) if words else None


async def _run(chat: TerminalChat, prompt: str | None, root: Path | None) -> None:
    async with _server(root, chat.model) as url, Client(url) as client:
        if prompt is not None:
            await _say(client, chat, prompt)
            return
        err.print("Type a message, or /bye to leave.", style="dim")
        while (line := await _read_line()) is not None:
            with _reported():
                await _say(client, chat, line)


@contextlib.asynccontextmanager
async def _server(root: Path | None, model: str) -> AsyncIterator[str]:
    """The server that runs already, or an embedded one; with `--models`, or for the demo's model, always our own."""
    from pilotfish.daemon.front.app import embedded
    from pilotfish.daemon.front.settings import settings_from_env
    from pilotfish.daemon.lab.demonstration import MODEL, demo_store
    from pilotfish.manifests.store import Store

    url = settings_from_env().url
    if root is None:
        async with Client(url) as client:
            if await client.alive():
                yield url
                return
    store = Store.find(root)
    if root is None and model == MODEL and not _holds(store, model):
        store = demo_store()
    with err.status(f"Starting a server for {model}"):
        server = embedded(store)
        url = await server.__aenter__()
    try:
        yield url
    finally:
        await server.__aexit__(None, None, None)


def _holds(store: Any, model: str) -> bool:
    try:
        store.manifest(model)
    except PilotfishError:
        return False
    return True


async def _say(client: Client, chat: TerminalChat, text: str) -> None:
    chat.messages.append({"role": "user", "content": text})
    body = {"model": chat.model, "messages": chat.messages, "options": chat.options}
    said, last, thinks = "", {}, False
    async with contextlib.aclosing(client.stream("/api/chat", body)) as events:
        async for event in events:
            message = event.get("message", {})
            piece = message.get("content", "")
            _show_thought(message.get("thinking", ""), ended=thinks and bool(piece))
            thinks = not piece and (thinks or "thinking" in message)
            said += piece
            drafted = event.get("pilotfish", {}).get("drafted", 0) > 0
            write_words(piece, DRAFTED if drafted and chat.show_drafts else "")
            last = event
    chat.messages.append({"role": "assistant", "content": said})
    if sys.stdout.isatty():
        write_words("\n")
    err.print(summary(last), style="dim", markup=False)


def _show_thought(thought: str, *, ended: bool) -> None:
    """What a model thinks, for whoever watches a terminal; it is no part of the answer."""
    if sys.stdout.isatty():
        write_words(thought, THOUGHT)
        write_words("\n\n" if ended else "")


def summary(last: dict[str, Any]) -> str:
    """One line on how an answer was made."""
    count, seconds = last.get("eval_count", 0), last.get("eval_duration", 0) / 1e9
    figures = last.get("pilotfish", {})
    rate = f"{count / seconds:.1f} tok/s" if seconds > 0 else "no rate"
    drafted, accepted = figures.get("draft_n", 0), figures.get("draft_n_accepted", 0)
    drafts = f"{accepted} of {drafted} drafted tokens accepted" if drafted else "nothing drafted"
    parity = f", parity {figures['parity']} ({figures.get('lane', '')})" if figures.get("parity") else ""
    return f"{count} tokens, {rate}, {drafts}{parity}"


async def _read_line() -> str | None:
    """The next message, or None at the end of the input or /bye."""
    while True:
        try:
            line = await asyncio.to_thread(input, ">>> " if sys.stdout.isatty() else "")
        except EOFError:
            return None
        if line.strip() in ("/bye", "/exit"):
            return None
        if line.strip():
            return line


@contextlib.contextmanager
def _reported() -> Any:
    try:
        yield
    except PilotfishError as error:
        err.print(f"Error: {harmless(str(error))}", style="red", markup=False, soft_wrap=True)
