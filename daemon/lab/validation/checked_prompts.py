"""The prompts of a run, checked before anything is generated: how they begin, their template, their length.

A prompt that begins otherwise than the model knows is another prompt: answers may repeat themselves, and they agree
with one another all the same, so that a comparison of ids passes and says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pilotfish.daemon.chat.chat_template import Conversation
from pilotfish.daemon.lab.parity_subject import Subject
from pilotfish.daemon.lab.prompt_beginnings import PromptBeginning
from pilotfish.daemon.lab.workloads import Workload, load_workloads
from pilotfish.hooks.errors import UsageError


@dataclass(frozen=True, slots=True)
class AskedPrompt:
    """A prompt as it was asked for: a chat of one turn, or with `raw` the text itself."""

    name: str
    prompt: str
    system: str = ""
    raw: bool = False


@dataclass(frozen=True, slots=True)
class CheckedPrompt:
    """A prompt as the model reads it: its text, which an ordinary Ollama can be asked, and its ids."""

    name: str
    text: str
    ids: tuple[int, ...]


def load_prompts(path: Path | None) -> list[AskedPrompt]:
    """The prompts of a file, or pilotfish's own workloads without one.

    A file has `workloads`, which are chats, `raw`, whose prompts are taken as they stand, or both. Raises UsageError.
    """
    raw = _raw(path) if path else []
    chats: list[Workload] = [] if path and raw and not _has_chats(path) else load_workloads(path)
    found = [AskedPrompt(chat.name, chat.prompt, chat.system) for chat in chats] + raw
    names = [prompt.name for prompt in found]
    if not found or len(set(names)) != len(names):
        raise UsageError(f"{path}: {'two prompts have one name; each needs its own' if found else 'it has no prompts'}")
    return found


def refusals_of_texts(prompts: Sequence[AskedPrompt], beginning: PromptBeginning) -> Iterator[str]:
    """What is wrong with raw prompts, from their texts alone: nothing has to be loaded."""
    bos = beginning.bos
    for prompt in (prompt for prompt in prompts if prompt.raw):
        begins = bool(bos) and prompt.prompt.startswith(bos)
        if not prompt.prompt:
            yield f"{prompt.name}: it is empty"
        elif begins and (beginning.by_tokenizer or prompt.prompt.startswith(bos * 2)):
            yield _twice(prompt.name, bos)
        elif beginning.expected and not begins and not beginning.by_tokenizer:
            yield _missing(prompt.name, bos)


def checked(subject: Subject, prompts: Sequence[AskedPrompt], beginning: PromptBeginning, tokens: int) -> Prompted:
    """The prompts as ids, with what is remarkable. Raises UsageError listing everything that is wrong with any."""
    ready = [_rendered(subject, prompt) for prompt in prompts]
    wrong = [why for prompt in ready for why in _refusals(subject, prompt, beginning, tokens)]
    if wrong:
        raise UsageError("nothing was run: " + "; ".join(wrong))
    return Prompted(tuple(ready), tuple(_remarks(subject, prompts, ready)))


@dataclass(frozen=True, slots=True)
class Prompted:
    """Prompts that are fit to be asked; `remarks` are for people."""

    prompts: tuple[CheckedPrompt, ...]
    remarks: tuple[str, ...] = ()


def _rendered(subject: Subject, prompt: AskedPrompt) -> CheckedPrompt:
    messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.prompt}]
    chat = Conversation(messages if prompt.system else messages[1:])
    text = prompt.prompt if prompt.raw else subject.template.render(chat)
    return CheckedPrompt(prompt.name, text, tuple(subject.engine.tokenizer.encode(text)))


def _refusals(subject: Subject, prompt: CheckedPrompt, beginning: PromptBeginning, tokens: int) -> Iterator[str]:
    bos, room = subject.pin.tokenizer.bos, subject.engine.n_ctx
    if not prompt.ids:
        yield f"{prompt.name}: it has no tokens"
    elif bos is not None and prompt.ids[:2] == (bos, bos):
        yield _twice(prompt.name, beginning.bos)
    elif bos is not None and beginning.expected and prompt.ids[0] != bos:
        yield _missing(prompt.name, beginning.bos)
    if len(prompt.ids) + tokens > room:
        yield f"{prompt.name}: {len(prompt.ids)} tokens and {tokens} of answer do not fit a context of {room}"


def _remarks(subject: Subject, prompts: Sequence[AskedPrompt], ready: Sequence[CheckedPrompt]) -> Iterator[str]:
    """A raw prompt without a single control token, of a model that has a chat template, is no chat to it."""
    tokenizer, bos = subject.engine.tokenizer, subject.pin.tokenizer.bos
    for asked, prompt in zip(prompts, ready, strict=True):
        plain = all(token == bos or tokenizer.piece(token) for token in set(prompt.ids))
        if asked.raw and plain and subject.template.source:
            yield f"{asked.name}: a raw prompt outside the model's chat template, which it may not answer as a chat"


def _missing(name: str, bos: str) -> str:
    return (
        f"{name}: it does not begin with {bos}, which the model's chat template holds and its tokenizer does not add. "
        "The model reads another prompt than it was trained on and may answer with repetitions, which agree with one "
        f"another and prove nothing; begin it with {bos}"
    )


def _twice(name: str, bos: str) -> str:
    return f"{name}: it begins with {bos} twice, since the tokenizer adds one; take it out of the text"


def _has_chats(path: Path) -> bool:
    return "workloads" in json.loads(path.read_text(encoding="utf-8"))


def _raw(path: Path) -> list[AskedPrompt]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        entries = document.get("raw", [])
        return [AskedPrompt(str(entry["name"]), str(entry["prompt"]), raw=True) for entry in entries]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        shape = '{"workloads": [{"name", "prompt"}, ...], "raw": [{"name", "prompt"}, ...]}'
        raise UsageError(f"{path}: not a file of prompts ({error!r}); it needs {shape}") from error
