"""Chat servers, which can only suggest text: Ollama's `/api/chat` and OpenAI's `/v1/chat/completions`.

The prompt is replayed as the user's message and what the target has written since as the beginning of the assistant's
answer. How a server's template closes that beginning is its own affair: what comes back is a suggestion and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.protocols import Vocabulary
from pilotfish.hooks.types import EngineOptions, TargetPin
from pilotfish.hooks.vocabulary import ByteVocabulary
from pilotfish.plugins.drafters._remote.breaker import Breaker
from pilotfish.plugins.drafters._remote.config import RemoteConfig
from pilotfish.plugins.drafters._remote.http import Connections, ErrorStatus
from pilotfish.plugins.drafters._remote.models import served_model
from pilotfish.plugins.drafters._remote.text import TextSession

_ECHO = 16  # characters of the beginning that some servers send back before the continuation


class ChatLink:
    """One chat server. `drafter` is the model it is asked for."""

    def __init__(self, config: RemoteConfig, connections: Connections, breaker: Breaker) -> None:
        self._config = config
        self._connections = connections
        self._breaker = breaker
        self._ollama = False
        self._continues: dict[str, Any] = {}  # what makes an OpenAI server continue instead of answering
        self.drafter = config.model

    def load(self, target: TargetPin, options: EngineOptions) -> Vocabulary | None:
        """Find out which server it is, and have it load the model by one short question."""
        self._ollama = self._is_ollama()
        model = served_model(self._connections, self._config)
        self.drafter = model.name
        if model.owner == "vllm":
            self._continues = {"continue_final_message": True, "add_generation_prompt": False}
        self._ask([{"role": "user", "content": "Hello"}], 1, self._config.load_timeout)
        return ByteVocabulary()

    def open(self, target: TargetPin, prompt: Sequence[int]) -> TextSession:
        return TextSession(self._suggest, prompt, self._breaker, max_bytes=self._config.max_bytes)

    def _suggest(self, prompt: str, written: str, tokens: int) -> str:
        messages = [{"role": "user", "content": prompt}]
        if written:
            messages.append({"role": "assistant", "content": written})
        text = self._ask(messages, tokens, self._config.timeout)
        echoed = len(written) >= _ECHO and text.startswith(written)
        return text[len(written) :] if echoed else text

    def _ask(self, messages: Sequence[Mapping[str, str]], tokens: int, within: float) -> str:
        common = {"model": self.drafter, "messages": list(messages), "stream": False}
        if self._ollama:
            options = {"num_predict": tokens, "temperature": 0}
            body = self._post("/api/chat", {**common, "think": False, "options": options}, within)
            return self._content(body.get("message"))
        continues = self._continues if messages[-1]["role"] == "assistant" else {}
        wanted = {**common, "max_tokens": tokens, "temperature": 0, **continues}
        choices = self._post("/v1/chat/completions", wanted, within).get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        return self._content(first.get("message") if isinstance(first, dict) else None)

    def _post(self, path: str, body: Mapping[str, Any], within: float) -> Mapping[str, Any]:
        return self._connections.ask("POST", path, body, within=within).body

    def _content(self, message: object) -> str:
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, str):
            raise ProtocolViolation(
                f"{self._config.address.url}: its answer holds no message; is it a chat server? If it completes raw "
                'prompts, set dialect = "completion"'
            )
        return content

    def _is_ollama(self) -> bool:
        try:
            version = self._connections.ask("GET", "/api/version", within=self._config.timeout).body.get("version")
        except (ErrorStatus, ProtocolViolation):
            return False
        return isinstance(version, str)
