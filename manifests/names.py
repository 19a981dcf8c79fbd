"""Model names, as Ollama writes, reads and stores them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePath

from pilotfish.hooks.errors import InvalidModelName

DEFAULT_HOST = "registry.ollama.ai"
DEFAULT_NAMESPACE = "library"
DEFAULT_TAG = "latest"

# Every part starts with a letter, a digit or an underscore, so none can be ".." or hidden.
_PARTS = {
    "host": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349}"),
    "namespace": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}"),
    "model": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}"),
    "tag": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}"),
}
_REMEDY = "write [host/][namespace/]model[:tag], such as smollm2:135m"
_LOCAL_SUFFIX = ":local"  # Ollama's way to say "this one is not in the cloud"; no part of the name


@dataclass(frozen=True, slots=True)
class ModelName:
    """A fully qualified model name whose parts are valid, so that `path` never leaves the store.

    The spelling is kept; two names that differ only in case compare unequal but share `folded`.
    """

    host: str
    namespace: str
    model: str
    tag: str

    def __post_init__(self) -> None:
        for kind, pattern in _PARTS.items():
            part = getattr(self, kind)
            if not pattern.fullmatch(part):
                raise InvalidModelName(
                    f"invalid model name {self.full!r}: the {kind} {part!r} is not allowed; {_REMEDY}"
                )

    @classmethod
    def parse(cls, text: str) -> ModelName:
        """The name that Ollama understands by `text`, defaults filled in.

        A scheme (`https://`) and a `:local` suffix are accepted and dropped. Raises InvalidModelName.
        """
        rest = text.strip()
        if rest.lower().endswith(_LOCAL_SUFFIX):
            rest = rest[: -len(_LOCAL_SUFFIX)]
        if "@" in rest:
            raise InvalidModelName(f"invalid model name {text!r}: Ollama has no names with a digest; {_REMEDY}")
        tag = DEFAULT_TAG
        if rest.rfind(":") > rest.rfind("/"):
            rest, _, tag = rest.rpartition(":")
        *place, model = rest.rsplit("/", 2)
        if "" in place:
            raise InvalidModelName(f"invalid model name {text!r}: nothing before or between the slashes; {_REMEDY}")
        host = place[0] if len(place) == 2 else DEFAULT_HOST
        if "://" in host:
            host = host.partition("://")[2] or DEFAULT_HOST
        return cls(host, place[-1] if place else DEFAULT_NAMESPACE, model, tag)

    @classmethod
    def from_path(cls, relative: PurePath) -> ModelName:
        """The name of a manifest from its path below `manifests/`. Raises InvalidModelName."""
        if len(relative.parts) != 4:
            raise InvalidModelName(f"{relative} is not a manifest's path; expected host/namespace/model/tag")
        return cls(*relative.parts)

    @property
    def full(self) -> str:
        """The name with nothing left out: `registry.ollama.ai/library/smollm2:135m`."""
        return f"{self.host}/{self.namespace}/{self.model}:{self.tag}"

    @property
    def short(self) -> str:
        """The name as Ollama displays it: `smollm2:135m`, without the default host and namespace."""
        if self.host.lower() != DEFAULT_HOST:
            return self.full
        if self.namespace.lower() != DEFAULT_NAMESPACE:
            return f"{self.namespace}/{self.model}:{self.tag}"
        return f"{self.model}:{self.tag}"

    @property
    def path(self) -> Path:
        """Where its manifest lies, below `manifests/`."""
        return Path(self.host, self.namespace, self.model, self.tag)

    @property
    def folded(self) -> tuple[str, str, str, str]:
        """What must be equal for two names to be one where case does not count."""
        return (self.host.lower(), self.namespace.lower(), self.model.lower(), self.tag.lower())

    def __str__(self) -> str:
        return self.short
