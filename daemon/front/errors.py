"""Errors on their way to a client: a status, and the words in Ollama's or OpenAI's shape."""

from __future__ import annotations

from typing import Any

from pilotfish.hooks.errors import EngineError, ModelNotFound, PilotfishError, UsageError

_OPENAI_TYPES = {400: "invalid_request_error", 404: "not_found_error"}


class StatusError(PilotfishError):
    """An answer other than 200, with the message a client sees."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RunnerGone(EngineError):
    """A runner ended, or could not be started; the message carries its last words."""


def status_of(error: PilotfishError) -> int:
    """The HTTP status an error deserves: 400 when the request is at fault, 500 when the world is."""
    if isinstance(error, StatusError):
        return error.status
    if isinstance(error, ModelNotFound):
        return 404
    return 400 if isinstance(error, UsageError) else 500


def ollama_error(message: str) -> dict[str, Any]:
    """Ollama's error object."""
    return {"error": message}


def openai_error(status: int, message: str) -> dict[str, Any]:
    """OpenAI's error object, with the types Ollama gives."""
    kind = _OPENAI_TYPES.get(status, "api_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}
