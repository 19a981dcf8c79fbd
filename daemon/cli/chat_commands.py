"""What may be typed in a chat besides messages: `ollama run`'s commands, as far as they mean something here.

What Ollama has and pilotfish has not is answered with what to do instead, never taken for a message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from pilotfish.daemon.cli.terminal_chat import AnswerFigures, TerminalChat
from pilotfish.daemon.front.options import Options, merge
from pilotfish.daemon.lab.asking import Client
from pilotfish.hooks.errors import PilotfishError, RequestError

HELP = """\
/set            change how the model is asked: /? set
/show           what is known of the model: /? show
/load MODEL     go on with another model, in a new conversation
/clear          begin a new conversation
/bye            leave; Ctrl-D does, too
/?, /help       this; /? shortcuts for keys

\"\"\" begins a message of several lines, and ends it. Ctrl-C stops an answer."""

SET_HELP = """\
/set parameter NAME VALUE   an option of Ollama's: temperature, seed, stop, ...
/set system TEXT            a system message; \"\"\" begins one of several lines
/set format json            answers are JSON objects; /set noformat ends that
/set think [LEVEL]          have the model think first; /set nothink: not
/set verbose                all figures of an answer; /set quiet: none
/set drafts                 accepted drafts coloured; /set nodrafts: not
/set speculate              with drafts; /set nospeculate: the same without
/set history                keep what is typed; /set nohistory: do not"""

SHOW_HELP = """\
/show info          architecture, size, context, what it can do
/show license       its licence
/show modelfile     a Modelfile of it, with what was set here
/show parameters    its own parameters, and those that were set here
/show system        the system message
/show template      the chat template"""

KEYS = """\
Ctrl-A, Ctrl-E      to the beginning, to the end of the line
Alt-B, Alt-F        a word back, a word on
Ctrl-K, Ctrl-U      remove up to the end, up to the beginning
Ctrl-W              remove the word before the cursor
Ctrl-L              clear the screen
Up, Down, Ctrl-R    what was typed before, and a search in it
Ctrl-C              stop an answer; remove what was typed
Ctrl-D              leave"""

_WRAPPING = "the terminal wraps lines here, and nothing is wrapped between words"
_NOT_HERE = {  # of what Ollama has
    "/set wordwrap": _WRAPPING,
    "/set nowordwrap": _WRAPPING,
    "/save": "pilotfish makes no models; put /show modelfile's lines into a file, then: ollama create NAME -f FILE",
}


_LEVELS: dict[str, bool | str] = {
    **{"": True, "true": True, "false": False},
    **{word: word for word in ("low", "medium", "high", "max")},
}
_SWITCHES = {  # what is set to what, and what is said of it
    "noformat": ("format", "", "Answers have no format."),
    "nothink": ("think", False, "Thinking: off."),
    "verbose": ("figures", AnswerFigures.VERBOSE, "Every time and count follows an answer."),
    "quiet": ("figures", AnswerFigures.QUIET, "Nothing follows an answer."),
    "drafts": ("show_drafts", True, "Accepted drafts have another colour."),
    "nodrafts": ("show_drafts", False, "Accepted drafts look like the rest."),
}


class Leave(Exception):  # nothing went wrong
    """The chat is over."""


class ChatCommands:
    """Obeys commands. `tell` shows what they answer; `keep_history` is told whether what is typed is kept."""

    def __init__(
        self,
        chat: TerminalChat,
        client: Client,
        tell: Callable[[str], None],
        keep_history: Callable[[bool], None] = lambda keep: None,
    ) -> None:
        self._chat, self._client, self._tell, self._keep_history = chat, client, tell, keep_history

    async def obey(self, line: str) -> None:
        """Do what `line`, which begins with `/`, says. Raises Leave, or RequestError for what is none."""
        name, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        match name:
            case "/bye" | "/exit":
                raise Leave
            case "/?" | "/help":
                self._help(rest.removeprefix("/"))
            case "/clear":
                self._chat.messages.clear()
                self._tell("A new conversation begins.")
            case "/load":
                await self._load(rest)
            case "/set":
                self._set(rest)
            case "/show":
                await self._show(rest)
            case _ if name in _NOT_HERE:
                raise RequestError(f"{name}: {_NOT_HERE[name]}")
            case _:
                raise RequestError(
                    f'there is no command {name!r}; /? lists them, and """ begins a message with a slash'
                )

    def _help(self, about: str) -> None:
        texts = {"": HELP, "help": HELP, "?": HELP, "set": SET_HELP, "show": SHOW_HELP, "shortcuts": KEYS}
        self._tell(texts.get(about) or HELP)

    async def _load(self, model: str) -> None:
        if not model:
            raise RequestError("/load needs the name of a model; `pilotfish models` lists them")
        await self._asked("/api/chat", {"model": model, "messages": []})
        self._chat.model = model
        self._chat.messages.clear()
        self._tell(f"{model} is loaded. A new conversation begins.")

    def _set(self, line: str) -> None:
        what, _, value = line.partition(" ")
        value = value.strip()
        if not what:
            self._tell(SET_HELP)
        elif what in _SWITCHES:
            name, setting, told = _SWITCHES[what]
            setattr(self._chat, name, setting)
            self._tell(told)
        elif what in ("speculate", "nospeculate"):
            self._chat.options["speculate"] = what == "speculate"
            self._tell(f"Answers are made {'with' if what == 'speculate' else 'without'} drafts.")
        elif what in ("history", "nohistory"):
            self._keep_history(what == "history")
            self._tell(f"What is typed is {'kept' if what == 'history' else 'not kept'}.")
        else:
            self._set_value(what, value)

    def _set_value(self, what: str, value: str) -> None:
        name = f"/set {what}"
        match what:
            case "parameter":
                self._set_parameter(value.split())
            case "system":
                self._chat.system = value
                self._tell("The system message is set." if value else "The system message is the model's own again.")
            case "format" if value == "json":
                self._chat.format = "json"
                self._tell("Answers are JSON objects.")
            case "think" if value in _LEVELS:
                self._chat.think = _LEVELS[value]
                self._tell(f"Thinking: {value or 'on'}.")
            case "format" | "think":
                raise RequestError(f"{name} does not take {value!r}; /? set says what it takes")
            case _ if name in _NOT_HERE:
                raise RequestError(f"{name}: {_NOT_HERE[name]}")
            case _:
                raise RequestError(f"there is nothing named {what!r} to set; /? set lists what is")

    def _set_parameter(self, words: Sequence[str]) -> None:
        if len(words) < 2:
            raise RequestError("/set parameter needs a name and a value, as in: /set parameter temperature 0")
        name, *values = words
        self._chat.options[name] = typed(name, values)
        self._tell(f"{name} is {' '.join(values)}.")

    async def _show(self, what: str) -> None:
        chat = self._chat
        if not what:
            self._tell(SHOW_HELP)
            return
        about = await self._asked("/api/show", {"model": chat.model, "system": chat.system})
        mine = "\n".join(f"PARAMETER {name} {value}" for name, value in _spelled(chat.options))
        texts = {
            "info": _info(about),
            "license": about.get("license", ""),
            "modelfile": f"{about.get('modelfile', '').rstrip()}\n{mine}",
            "parameters": f"Its own:\n{about.get('parameters') or 'none'}\n\nSet here:\n{_listed(chat.options)}",
            "system": about.get("system", ""),
            "template": about.get("template", ""),
        }
        if what not in texts:
            raise RequestError(f"there is nothing named {what!r} to show; /? show lists what is")
        self._tell(texts[what] or f"{chat.model} says nothing of its {what}.")

    async def _asked(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The last object of an answer. Raises WorldError with the server's words."""
        found: dict[str, Any] = {}
        async for event in self._client.stream(path, body):
            found = event
        return found


def typed(name: str, values: Sequence[str]) -> Any:
    """What was typed for an option, as a request has it. Raises RequestError for an unknown name and a wrong value."""
    if name not in _NAMES:
        raise RequestError(f"there is no parameter {name!r}; there are {', '.join(_NAMES)}")
    if name == "stop":
        return list(values)
    if len(values) > 1:
        raise RequestError(f"{name} takes one value, not {len(values)}")
    for candidate in _readings(values[0]):
        try:
            merge(Options(), {name: candidate})
        except PilotfishError as error:
            refused = error
        else:
            return candidate
    raise refused


_NAMES = tuple(option.name for option in fields(Options) if option.name != "return_tokens")


def _readings(text: str) -> list[Any]:
    """What a word may stand for, the likeliest last: its refusal is the one to tell."""
    found: list[Any] = [text]
    for kind in (float, int):
        try:
            found.insert(0, kind(text))
        except ValueError:
            continue
    if text in ("true", "false"):
        found.insert(0, text == "true")
    return found


def _spelled(options: dict[str, Any]) -> list[tuple[str, str]]:
    """Options as lines of a Modelfile: one for each value, and none of pilotfish's own."""
    every = ((name, value) for name, value in options.items() if name != "speculate")
    return [
        (name, str(item).lower() if isinstance(item, bool) else f'"{item}"' if isinstance(item, str) else str(item))
        for name, value in every
        for item in (value if isinstance(value, list) else [value])
    ]


def _listed(options: dict[str, Any]) -> str:
    return "\n".join(f"{name:<30} {value}" for name, value in _spelled(options)) or "none"


def _info(about: dict[str, Any]) -> str:
    details, info = about.get("details", {}), about.get("model_info", {})
    family = info.get("general.architecture") or details.get("family", "")
    rows = [
        ("architecture", family),
        ("parameters", details.get("parameter_size", "")),
        ("context length", info.get(f"{family}.context_length", "")),
        ("embedding length", info.get(f"{family}.embedding_length", "")),
        ("quantization", details.get("quantization_level", "")),
        ("capabilities", ", ".join(about.get("capabilities", ()))),
    ]
    return "\n".join(f"{name:<20}{value}" for name, value in rows if value)
