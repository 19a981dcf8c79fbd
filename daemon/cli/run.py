"""`pilotfish run`: chat with a model in the terminal, like `ollama run`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from pilotfish.daemon.cli.console import end_unread, err, harmless
from pilotfish.daemon.cli.terminal_chat import AnswerFigures, TerminalChat, say
from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.lab.asking import Client
from pilotfish.hooks.environment import variable
from pilotfish.hooks.errors import PilotfishError


@click.command("run")
@click.argument("model")
@click.argument("words", metavar="[PROMPT]...", nargs=-1)
@click.option("--show-drafts", is_flag=True, help="Show accepted draft tokens in another colour.")
@click.option("--speculate/--no-speculate", default=True, help="Without speculation the tokens are the same.")
@click.option("--verbose", is_flag=True, help="Show every time and count after an answer, not only a line of rates.")
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
    verbose: bool,
    system: str | None,
    root: Path | None,
    **sampling: float | int | None,
) -> None:
    """Run a prompt, or chat when none is given. Uses the server at $PILOTFISH_HOST, or starts one for itself.

    The words of the prompt need no quotes. What is piped in stands before them: `cat notes | pilotfish run m sum up`.
    """
    options = {"speculate": speculate, **{name: value for name, value in sampling.items() if value is not None}}
    figures = AnswerFigures.VERBOSE if verbose else AnswerFigures.LINE
    chat = TerminalChat(model, options, show_drafts, figures, system or "")
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
            await say(client, chat, prompt)
        else:
            await _converse(chat, client)


async def _converse(chat: TerminalChat, client: Client) -> None:
    """Messages and commands until the end of the input, or /bye."""
    from pilotfish.daemon.cli.chat_commands import ChatCommands, Leave
    from pilotfish.daemon.cli.chat_input import FILE_NAME, ChatInput, TypedHistory, asking

    kept = not (variable("PILOTFISH_NOHISTORY") or variable("OLLAMA_NOHISTORY"))
    history = TypedHistory(state_dir() / FILE_NAME, keep=kept)
    messages = ChatInput(asking(history), _tell)
    commands = ChatCommands(chat, client, _tell, partial(setattr, history, "keep"))
    with contextlib.suppress(Leave):
        while (entry := await messages.read()) is not None:
            with _reported():
                if entry.command:
                    await commands.obey(entry.text)
                else:
                    await _until_stopped(say(client, chat, entry.text))


async def _until_stopped(answer: Coroutine[Any, Any, None]) -> None:
    """Wait for an answer, which Ctrl-C stops, and only that."""
    loop, answering = asyncio.get_running_loop(), asyncio.ensure_future(answer)
    loop.add_signal_handler(signal.SIGINT, answering.cancel)
    try:
        await asyncio.wait([answering])
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        answering.cancel()
    if answering.cancelled():
        _tell("Stopped.")
    else:
        answering.result()


def _tell(text: str) -> None:
    err.print(harmless(text), markup=False, soft_wrap=True)


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


@contextlib.contextmanager
def _reported() -> Any:
    try:
        yield
    except PilotfishError as error:
        err.print(f"Error: {harmless(str(error))}", style="red", markup=False, soft_wrap=True)
