"""Raw prefix completion: llama-server's `/completion`, or `/v1/completions` as vLLM answers it.

Ids travel both ways where the server's tokenizer is shown to be the target's (see `_remote_tokenizer`) and its
replies carry ids; otherwise text does, and a bridge makes ids of it on this side.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pilotfish.hooks.errors import ProtocolViolation
from pilotfish.hooks.history import History
from pilotfish.hooks.proposals import checked
from pilotfish.hooks.protocols import DraftSession, Vocabulary
from pilotfish.hooks.types import EMPTY, Ack, EngineOptions, Proposal, TargetPin
from pilotfish.hooks.vocabulary import ByteVocabulary
from pilotfish.plugins.drafters._remote.breaker import Breaker
from pilotfish.plugins.drafters._remote.config import RemoteConfig
from pilotfish.plugins.drafters._remote.http import Connections, ErrorStatus
from pilotfish.plugins.drafters._remote.models import ListedModel, served_model
from pilotfish.plugins.drafters._remote.text import Asking, TextSession
from pilotfish.plugins.drafters._remote.tokenizer import difference

log = logging.getLogger("pilotfish.drafters")


class CompletionLink:
    """One completion server. `drafter` is the model it is asked for."""

    def __init__(self, config: RemoteConfig, connections: Connections, breaker: Breaker) -> None:
        self._config = config
        self._connections = connections
        self._breaker = breaker
        self._llama = False
        self._ids = False
        self.drafter = config.model

    @property
    def url(self) -> str:
        return self._config.address.url

    def load(self, target: TargetPin, options: EngineOptions) -> Vocabulary | None:
        """Find out which server it is and what it speaks. The vocabulary; None for the target's own ids."""
        self._llama = self._is_llama_server()
        model = served_model(self._connections, self._config)
        self.drafter = model.name
        reason = self._why_no_ids(model, target)
        self._ids = not reason
        if reason:
            log.info("%s: text is exchanged, not ids: %s", self.url, reason)
        return None if self._ids else ByteVocabulary()

    def open(self, target: TargetPin, prompt: Sequence[int]) -> DraftSession:
        if self._ids:
            return IdSession(self, prompt, target.tokenizer.n_vocab, self._breaker)
        return TextSession(self._continue, prompt, self._breaker)

    def complete_ids(self, ids: Sequence[int], k: int, within: float | None = None) -> Any:
        """The ids that follow `ids`, as the server gives them; None when it gives none."""
        answer = self._complete(list(ids), k, within)
        return answer.get("tokens" if self._llama else "token_ids")

    def _continue(self, prompt: str, written: str, tokens: int) -> str:
        text = self._complete(prompt + written, tokens).get("content" if self._llama else "text")
        if not isinstance(text, str):
            raise ProtocolViolation(f"{self.url}: its answer holds no text; is it a completion server?")
        return text

    def _complete(self, prompt: str | list[int], n: int, within: float | None = None) -> Mapping[str, Any]:
        within = within or self._config.timeout
        common = {"prompt": prompt, "temperature": 0, "stream": False}
        if self._llama:
            wanted = {**common, "n_predict": n, "cache_prompt": True, "return_tokens": True}
            return self._connections.ask("POST", "/completion", wanted, within=within).body
        wanted = {**common, "model": self.drafter, "max_tokens": n}
        if not isinstance(prompt, str):
            wanted["return_token_ids"] = True
        choices = self._connections.ask("POST", "/v1/completions", wanted, within=within).body.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise ProtocolViolation(f"{self.url}: its answer holds no choice; is it a completion server?")
        return choices[0]

    def _why_no_ids(self, model: ListedModel, target: TargetPin) -> str:
        """Empty when ids may be exchanged."""
        n_vocab = target.tokenizer.n_vocab
        if model.n_vocab and model.n_vocab != n_vocab:
            return f"{model.name} has {model.n_vocab} ids, {target.name} {n_vocab}"
        if reason := difference(self._detokenize, target):
            return reason
        try:
            given = self.complete_ids([n_vocab // 2], 1, self._config.load_timeout)
        except ErrorStatus as refusal:
            return str(refusal)
        return "" if isinstance(given, list) else "its answers carry no ids"

    def _detokenize(self, ids: Sequence[int]) -> str | None:
        wanted: dict[str, Any] = {"tokens": list(ids)}
        if not self._llama:
            wanted["model"] = self.drafter
        try:
            answer = self._connections.ask("POST", "/detokenize", wanted, within=self._config.timeout).body
        except ErrorStatus:
            return None
        text = answer.get("content" if self._llama else "prompt")
        return text if isinstance(text, str) else None

    def _is_llama_server(self) -> bool:
        try:
            props = self._connections.ask("GET", "/props", within=self._config.timeout).body
        except (ErrorStatus, ProtocolViolation):
            return False
        return "default_generation_settings" in props


class IdSession:
    """One request over ids. The server keeps no session: the whole history travels, and its cache finds the prefix."""

    def __init__(self, link: CompletionLink, prompt: Sequence[int], n_vocab: int, breaker: Breaker) -> None:
        self._link = link
        self._history = History(prompt)
        self._n_vocab = n_vocab
        self._asking = Asking(breaker)

    def propose(self, k: int) -> Proposal:
        if k <= 0:
            return EMPTY
        proposal = self._asking(lambda: self._checked(self._link.complete_ids(self._history.tokens, k)))
        return EMPTY if proposal is None else proposal.first(k)

    def commit(self, tokens: Sequence[int]) -> Ack:
        return self._history.commit(tokens)

    def rollback(self) -> Ack:
        return self._history.ack()

    def close(self) -> None:
        pass

    def _checked(self, tokens: Any) -> Proposal:
        try:
            return checked(Proposal(tokens), self._n_vocab)
        except ProtocolViolation as error:
            raise ProtocolViolation(f"{self._link.url}: {error}") from error
