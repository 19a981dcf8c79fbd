"""Every error pilotfish raises on purpose.

    PilotfishError
    ├── UsageError                 you asked for something that cannot be: fix the call, the config or the request
    │   ├── RequestError           one request is at fault (wrong type, absurd option, too long for the context)
    │   │   ├── ContextOverflow    the prompt does not fit the context window
    │   │   └── UnsupportedRequest well formed, but not something this runner does (images, tools, LoRA, ...)
    │   ├── ConfigError            the config file or an environment variable
    │   └── InvalidModelName       a model name that Ollama would not accept either
    └── WorldError                 something outside broke or is not there
        ├── ModelNotFound          no such model in the store
        ├── BrokenModel            a manifest, blob or GGUF that cannot be trusted
        ├── AdmissionRefused       a drafter does not fit in the memory that is left
        ├── DeviceBusy             another process holds a device that only one may use
        ├── EngineError            libllama (or another engine) failed
        │   └── EngineMissing      it is not installed
        └── ProtocolViolation      a plugin broke the contract (wrong ids, wrong history)

Messages say what happened, to which model or file, and what to do about it.
"""

from __future__ import annotations


class PilotfishError(Exception):
    """Base of all errors raised on purpose."""


class UsageError(PilotfishError):
    """The caller asked for something that cannot be."""


class RequestError(UsageError):
    """One request is at fault; the process and every other request go on."""


class ContextOverflow(RequestError):
    """A prompt that does not fit the context window.

    `n_prompt_tokens` and `n_ctx` are token counts, reported to the client as llama-server does.
    """

    def __init__(self, n_prompt_tokens: int, n_ctx: int) -> None:
        super().__init__(
            f"request ({n_prompt_tokens} tokens) exceeds the available context size ({n_ctx} tokens), "
            "try increasing it (num_ctx) or shorten the prompt"
        )
        self.n_prompt_tokens = n_prompt_tokens
        self.n_ctx = n_ctx


class UnsupportedRequest(RequestError):
    """A well-formed request for something this runner does not do."""


class ConfigError(UsageError):
    """The config file or an environment variable is wrong; the message starts with the key's path."""


class InvalidModelName(UsageError):
    """A model name that Ollama would not accept either."""


class WorldError(PilotfishError):
    """Something outside pilotfish broke or is missing."""


class ModelNotFound(WorldError):
    """The store has no such model; the message names the model and how to get it."""


class BrokenModel(WorldError):
    """A manifest, blob or GGUF that cannot be trusted; the message names file and model."""


class AdmissionRefused(WorldError):
    """A drafter would not fit beside the target; the message prints the sum."""


class DeviceBusy(WorldError):
    """A device that only one process may use is held; the message names the holder."""


class EngineError(WorldError):
    """The engine failed; the session in which it happened is over."""


class EngineMissing(EngineError):
    """The engine is not installed; the message says how to get it."""


class ProtocolViolation(WorldError):
    """A plugin broke the contract of `pilotfish.hooks.protocols`."""
