"""Where an engine library's own log goes, and what it said last."""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from pilotfish.hooks.errors import ConfigError

LOG_TARGETS = ("logger", "stderr")

_DEBUG, _WARN, _ERROR, _CONT = 1, 3, 4, 5  # ggml_log_level; CONT continues the line before it


def log_target(engine: str, config: Mapping[str, Any]) -> str:
    """The table's `log`. Raises ConfigError."""
    target: str = config.get("log", "logger")
    if target not in LOG_TARGETS:
        raise ConfigError(f"verifiers.{engine}.log: expected one of {', '.join(LOG_TARGETS)}, got {target!r}")
    return target


class EngineLog:
    """`write` is the library's callback. Until `target` is set nobody has decided, and the library prints by itself."""

    def __init__(self, library: str, logger: str) -> None:
        self.target = ""
        self._library, self._logger = library, logging.getLogger(logger)
        self._level = 0  # of the last line
        self._tail: deque[str] = deque(maxlen=6)

    def last_words(self) -> str:
        """The library's last warnings and errors, for messages; reading them forgets them."""
        words = "; ".join(line.strip() for line in self._tail if line.strip())
        self._tail.clear()
        return words or f"{self._library} gave no reason"

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """To the logger meanwhile: what is said of another model is not for whoever reads of this one."""
        before, self.target = self.target, "logger"
        try:
            yield
        finally:
            self.target = before

    def write(self, level: int, text: bytes, _user: object) -> None:
        """To stderr byte for byte, as llama-server would print it, or to the logger.

        Debug lines never reach stderr: llama-server drops them too, and Ollama parses what is left.
        """
        level = self._level = self._level if level == _CONT else level
        if level in (_WARN, _ERROR):
            self._tail.append(text.decode("utf-8", "replace"))
        if self.target == "stderr":
            if level != _DEBUG:
                os.write(2, text)
        elif self._logger.isEnabledFor(logging.DEBUG):
            self._logger.debug("%s", text.decode("utf-8", "replace").rstrip("\n"))
