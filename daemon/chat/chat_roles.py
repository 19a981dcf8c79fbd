"""What the roles of chat messages mean, wherever messages are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SYSTEM_ROLES = ("system", "developer")  # they say how to answer; the second is OpenAI's newer word for it
_RESULT_ROLES = ("tool", "function")  # what calls of tools returned; the second is OpenAI's older word
_CALLS = ("tool_calls", "function_call")  # keys of the message that called


def has_tools(role: str, message: Mapping[str, Any]) -> bool:
    """Whether `message`, of that role, calls tools or is what a call returned."""
    return role in _RESULT_ROLES or any(message.get(key) for key in _CALLS)
