"""Whose libllama this process, and those that it starts, will load."""

from __future__ import annotations

import os

from pilotfish.daemon.config.types import LIBLLAMA, Config

LIBRARY_FOLDER = "LLAMA_CPP_LIB_PATH"  # where llama-cpp-python looks for it, when it is first imported


def take_libllama_from(config: Config) -> None:
    """Where the config names a folder, say so to llama-cpp-python; a library that is loaded stays."""
    if config.engine.libllama not in LIBLLAMA:
        os.environ[LIBRARY_FOLDER] = config.engine.libllama
