"""llama-server's command line, as Ollama writes it, parsed into one frozen value.

`launch_flags` lists every flag; the served ones are read here. One that asks for what this runner does not do is
refused by name, so that the caller can start the stock server instead.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.runner.launch_flags import BY_NAME, Handling, words_of
from pilotfish.daemon.runner.own_drafter import FLAGS as DRAFT_FLAGS
from pilotfish.daemon.runner.own_drafter import by_itself, draft_model, with_own_drafter
from pilotfish.daemon.runner.wire.request_defaults import RequestDefaults
from pilotfish.hooks.errors import UsageError
from pilotfish.hooks.types import EngineOptions
from pilotfish.manifests.blob_users import Blob, blob_of
from pilotfish.manifests.manifest_paths import name_at

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
DEFAULT_CONTEXT = 4096  # tokens, when the launch does not say (or says 0)
DEFAULT_CACHE_RAM = 8192 << 20  # bytes, llama-server's own


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of the runner. `context` is the total over all `parallel` slots, as llama-server counts it."""

    model: Path
    host: str = "127.0.0.1"
    port: int = 8080  # 0 lets the system choose one
    context: int = DEFAULT_CONTEXT
    parallel: int = 1
    slot_similarity: float = 0.1
    alias: str = ""
    threads: int | None = None
    batch_size: int = 512
    gpu_layers: int | None = None
    main_gpu: int | None = None  # the only accelerator to use; None: all of them
    use_mmap: bool = True
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    flash_attention: bool | None = None
    projector: Path | None = None  # for images and sound, which the stock server beside the runner answers
    draft: Path | None = None  # a small model that drafts
    chat_template: str = ""  # a template's text, or "chatml"; empty means the model's own
    n_predict: int = -1  # tokens, for requests that set none
    cache_ram: int | None = DEFAULT_CACHE_RAM  # bytes for conversations outside the slots; None: no limit, 0: none
    context_shift: bool = False  # a full context forgets its beginning, but for its first `keep` tokens
    keep: int = 0
    cache_prompt: bool = True
    blob: Blob | None = None  # whose weights `model` is, if it lies in a model store and somebody looked

    @property
    def name(self) -> str:
        """What the server calls its model: the alias, else the path, as stock does."""
        return self.alias or str(self.model)

    @property
    def names(self) -> tuple[str, ...]:
        """The models that Ollama may be asking for: all with these weights, or the one whose manifest `model` is.

        Needs `with_users`.
        """
        named = name_at(self.model)
        return tuple(user.name.short for user in self.blob.users) if self.blob else (named.short,) if named else ()

    def with_users(self) -> Launch:
        """The same launch with its `blob`. Opens every manifest of the store: to be asked once in a process."""
        return replace(self, blob=blob_of(self.model))

    @property
    def defaults(self) -> RequestDefaults:
        """What holds for requests that do not say otherwise."""
        return RequestDefaults(self.n_predict, self.context_shift, self.keep, self.cache_prompt, self.parallel)

    def engine_options(self, state_dir: Path | None) -> EngineOptions:
        """What the verifier is asked to load; each slot gets its share of the context."""
        return EngineOptions(
            n_ctx=max(1, self.context // self.parallel),
            slots=self.parallel,
            slot_similarity=self.slot_similarity,
            threads=self.threads,
            batch_size=self.batch_size,
            gpu_layers=self.gpu_layers,
            main_gpu=self.main_gpu,
            use_mmap=self.use_mmap,
            cache_type_k=self.cache_type_k,
            cache_type_v=self.cache_type_v,
            flash_attention=self.flash_attention,
            state_dir=state_dir,
        )


def parse(argv: Sequence[str], environment: Mapping[str, str] = os.environ) -> Launch:
    """A launch from `argv` (without the program's name), and from what `environment` says before it.

    Raises UsageError, naming the flag or the variable and the remedy.
    """
    seen: dict[str, Any] = {}
    for variable, words in words_of(environment):
        try:
            _take(words, seen)
        except UsageError as error:
            raise UsageError(f"{variable} is set: {error}, or unset it") from error
    words = by_itself(argv)
    while words:
        _take(words, seen)
    if "model" not in seen:
        raise UsageError("--model: missing; name the GGUF file to serve")
    if "projector" in seen:  # with one, stock's contexts do not shift
        seen["context_shift"] = False
    main_gpu = seen.pop("main_gpu", 0)
    if seen.pop("one_gpu", False):  # where layers are split, there is no main one
        seen["main_gpu"] = main_gpu
    return Launch(**seen)


def _take(words: list[str], seen: dict[str, Any]) -> None:
    """Take one flag and its values from the front of `words`, and what it says into `seen`. Raises UsageError."""
    name = words.pop(0)
    flag = BY_NAME.get(name)
    if flag is None:
        raise UsageError(f"{name}: not a flag this runner knows; start the stock llama-server for this launch")
    if len(words) < flag.values:
        raise UsageError(f"{name}: a value is missing; give one after the flag")
    values = [words.pop(0) for _ in range(flag.values)]
    if flag.handling is Handling.STOCK and not (values and values[0] in flag.usual):
        raise UsageError(f"{name}: {flag.about}; start the stock llama-server for this model")
    if flag.handling is Handling.SERVED:
        seen.update(_VALUES[name](name, values[0]) if values else _SWITCHES[name])


def in_force(config: Config, launch: Launch) -> Config:
    """The config for this launch's models. MLX models, which their manifests name, are computed here alone."""
    own = config.for_models(launch.names)
    return with_own_drafter(own.without_far_ends if name_at(launch.model) else own, launch.draft)


def model_path(argv: Sequence[str]) -> Path:
    """The word after --model, whatever else `argv` says; a path that is no file when there is none."""
    for flag, value in itertools.pairwise(argv):
        if flag in ("--model", "-m"):
            return Path(value)
    return Path("no model")


_Reader = Callable[[str, str], Mapping[str, object]]


def _text(key: str) -> _Reader:
    return lambda flag, text: {key: text}


def _whole(key: str, low: int, high: int = 2**31 - 1) -> _Reader:
    def read(flag: str, text: str) -> Mapping[str, object]:
        try:
            value = int(text)
        except ValueError:
            raise UsageError(f"{flag}: expected a whole number, got {text!r}") from None
        if not low <= value <= high:
            raise UsageError(f"{flag}: must be between {low} and {high}, got {value}")
        return {key: value}

    return read


def _choice(key: str, choices: Mapping[str, object]) -> _Reader:
    def read(flag: str, text: str) -> Mapping[str, object]:
        if text.lower() not in choices:
            raise UsageError(f"{flag}: expected one of {', '.join(choices)}, got {text!r}")
        return {key: choices[text.lower()]}

    return read


def _share(key: str) -> _Reader:
    def read(flag: str, text: str) -> Mapping[str, object]:
        try:
            value = float(text)
        except ValueError:
            raise UsageError(f"{flag}: expected a number, got {text!r}") from None
        if not 0 <= value <= 1:
            raise UsageError(f"{flag}: must be between 0 and 1, got {text}")
        return {key: value}

    return read


def _context(flag: str, text: str) -> Mapping[str, object]:
    value = _whole("context", 0)(flag, text)["context"]
    return {"context": value or DEFAULT_CONTEXT}


def _cache_ram(flag: str, text: str) -> Mapping[str, object]:
    mebibytes = _whole("cache_ram", -1)(flag, text)["cache_ram"]
    return {"cache_ram": None if mebibytes == -1 else int(str(mebibytes)) << 20}


def _projector(flag: str, text: str) -> Mapping[str, object]:
    if not Path(text).is_file():
        raise UsageError(f"{flag}: there is no file {text}")
    return {"projector": Path(text)}


def _threads(flag: str, text: str) -> Mapping[str, object]:
    value = _whole("threads", -1, 4096)(flag, text)["threads"]
    return {"threads": value if isinstance(value, int) and value > 0 else None}


def _gpu_layers(flag: str, text: str) -> Mapping[str, object]:
    if text in ("auto", "all"):
        return {"gpu_layers": None if text == "auto" else 2**31 - 1}
    return _whole("gpu_layers", 0)(flag, text)


def _template(flag: str, text: str) -> Mapping[str, object]:
    if text != "chatml" and "{" not in text:
        raise UsageError(f"{flag}: no built-in template is called {text!r} here; give chatml or a template's text")
    return {"chat_template": text}


def _template_file(flag: str, text: str) -> Mapping[str, object]:
    try:
        return {"chat_template": Path(text).read_text(encoding="utf-8")}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{flag}: {text} cannot be read: {error}") from error


_CACHE_TYPE = {name: name for name in CACHE_TYPES}
_LOAD_MODE = {"auto": True, "mmap": True, "none": False, "dio": False}

_VALUES: dict[str, _Reader] = {
    **dict.fromkeys(("-m", "--model"), lambda flag, text: {"model": Path(text)}),
    **dict.fromkeys(("-a", "--alias"), _text("alias")),
    **dict.fromkeys(("-mm", "--mmproj"), _projector),
    **dict.fromkeys(DRAFT_FLAGS, lambda flag, text: {"draft": draft_model(flag, text)}),
    "--host": _text("host"),
    "--port": _whole("port", 0, 65535),
    **dict.fromkeys(("-c", "--ctx-size"), _context),
    **dict.fromkeys(("-np", "--parallel"), _whole("parallel", 1, 256)),
    **dict.fromkeys(("-sps", "--slot-prompt-similarity"), _share("slot_similarity")),
    **dict.fromkeys(("-t", "--threads"), _threads),
    **dict.fromkeys(("-cram", "--cache-ram"), _cache_ram),
    **dict.fromkeys(("-b", "--batch-size"), _whole("batch_size", 1, 2**20)),
    **dict.fromkeys(("-n", "--predict", "--n-predict"), _whole("n_predict", -1)),
    **dict.fromkeys(("-ngl", "--gpu-layers", "--n-gpu-layers"), _gpu_layers),
    **dict.fromkeys(("-ctk", "--cache-type-k"), _choice("cache_type_k", _CACHE_TYPE)),
    **dict.fromkeys(("-ctv", "--cache-type-v"), _choice("cache_type_v", _CACHE_TYPE)),
    **dict.fromkeys(("-fa", "--flash-attn"), _choice("flash_attention", {"on": True, "off": False, "auto": None})),
    "--keep": _whole("keep", -1),
    **dict.fromkeys(("-sm", "--split-mode"), _choice("one_gpu", {"none": True, "layer": False})),
    **dict.fromkeys(("-mg", "--main-gpu"), _whole("main_gpu", 0)),
    **dict.fromkeys(("-lm", "--load-mode"), _choice("use_mmap", _LOAD_MODE)),
    "--chat-template": _template,
    "--chat-template-file": _template_file,
}

_SWITCHES: dict[str, Mapping[str, object]] = {
    "--no-mmap": {"use_mmap": False},
    "--mmap": {"use_mmap": True},
    "--context-shift": {"context_shift": True},
    "--no-context-shift": {"context_shift": False},
    "--cache-prompt": {"cache_prompt": True},
    "--no-cache-prompt": {"cache_prompt": False},
}
