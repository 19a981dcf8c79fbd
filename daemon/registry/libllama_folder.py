"""Whose libllama this process, and those that it starts, will load."""

from __future__ import annotations

import os

from pilotfish.daemon.config.types import LIBLLAMA, Config

LIBRARY_FOLDER = "LLAMA_CPP_LIB_PATH"  # where llama-cpp-python looks for it, when it is first imported
BEFORE = "PILOTFISH_LIBLLAMA_BEFORE"  # what that was before a config named a folder; children inherit both


def take_libllama_from(config: Config) -> None:
    """Where the config names a folder, say so to llama-cpp-python, and where it no longer does, take that back: a
    daemon outlives its config. A library that is loaded stays."""
    if config.engine.libllama not in LIBLLAMA:
        os.environ.setdefault(BEFORE, os.environ.get(LIBRARY_FOLDER, ""))
        os.environ[LIBRARY_FOLDER] = config.engine.libllama
    elif (before := os.environ.pop(BEFORE, None)) is not None:
        os.environ[LIBRARY_FOLDER] = before
        if not before:
            del os.environ[LIBRARY_FOLDER]
