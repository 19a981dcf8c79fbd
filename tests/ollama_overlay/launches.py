"""Launches as Ollama makes them."""

from __future__ import annotations


def launch(blob, *more):
    """What Ollama says, and some flags."""
    return ["--model", str(blob), "--port", "1", "--host", "127.0.0.1", "--no-webui", "--offline", "-c", "4096",
            "-np", "1", "--log-verbosity", "4", "--no-log-prefix", "--no-log-timestamps", *more]  # fmt: skip
