"""The native draft protocol, this side of it; docs/draft-protocol.md is its definition.

What the target committed is acknowledged here at once and travels with the next proposal, so that a round costs one
exchange and the delivery of a token never waits for the network. The other side acknowledges the same history in its
reply; until it has, nothing it proposed is given on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pilotfish.hooks.errors import PilotfishError, ProtocolViolation, WorldError
from pilotfish.hooks.history import RunningDigest
from pilotfish.hooks.proposals import checked
from pilotfish.hooks.protocols import Vocabulary
from pilotfish.hooks.types import EMPTY, Ack, EngineOptions, Proposal, TargetPin
from pilotfish.hooks.vocabulary import BYTES, ByteVocabulary
from pilotfish.plugins.drafters._remote.breaker import Breaker
from pilotfish.plugins.drafters._remote.config import RemoteConfig
from pilotfish.plugins.drafters._remote.http import Connections, ErrorStatus, ServerConnection

PROTOCOL = 1
ROOT = "/v1/draft"
BUSY = 503
CLOSE_WITHIN = 2.0  # seconds
MAX_KEPT = 8192  # committed ids that may wait for the next proposal

T = TypeVar("T")


class NativeLink:
    """One draft host, asked to be ready for one target."""

    def __init__(self, config: RemoteConfig, connections: Connections, breaker: Breaker) -> None:
        self._config = config
        self._connections = connections
        self._breaker = breaker
        self._speaks = "ids"
        self._n_ctx = 0
        self.drafter = ""  # its name over there

    @property
    def url(self) -> str:
        return self._config.address.url

    def load(self, target: TargetPin, options: EngineOptions) -> Vocabulary | None:
        """Have the host load its drafter for `target`. The vocabulary of the sessions; None for the target's own."""
        hello = self._connections.ask("GET", ROOT, within=self._config.timeout).body
        if hello.get("protocol") != PROTOCOL:
            theirs = hello.get("protocol")
            raise ProtocolViolation(
                f"{self.url}: speaks draft protocol {theirs!r}, this side {PROTOCOL}; "
                "install the same version of pilotfish on both"
            )
        self.drafter = str(hello.get("drafter", ""))
        self._n_ctx = options.n_ctx
        wanted = self._wanted(target)
        answer = self._connections.ask("POST", f"{ROOT}/load", wanted, within=self._config.load_timeout).body
        self._speaks = answer.get("speaks", "")
        if self._speaks not in ("ids", "bytes"):
            raise ProtocolViolation(f"{self.url}: speaks {self._speaks!r}, neither ids nor bytes; update both sides")
        return None if self._speaks == "ids" else ByteVocabulary()

    def open(self, target: TargetPin, prompt: Sequence[int]) -> NativeSession:
        """A session over there, on a connection of its own. Raises WorldError while the server rests."""
        if not self._breaker.attempt():
            raise WorldError(f"{self.url}: {self._breaker.state()}")
        try:
            return self._open(target, prompt)
        except ErrorStatus as refusal:
            # One that is busy is there and well, and serves somebody else.
            self.settled(None if refusal.status == BUSY else refusal)
            raise
        except Exception as error:
            self.settled(error)
            raise

    def _open(self, target: TargetPin, prompt: Sequence[int]) -> NativeSession:
        body = {**self._wanted(target), "speaks": self._speaks, "prompt": list(prompt)}
        connection = self._connections.take()
        try:
            answer = connection.ask("POST", f"{ROOT}/open", body, within=self._config.load_timeout, again=True).body
            n_vocab = target.tokenizer.n_vocab if self._speaks == "ids" else BYTES
            session = NativeSession(self, connection, str(answer.get("session", "")), prompt, n_vocab)
            session.compare(answer)
            return session
        except BaseException:
            connection.close()
            self._connections.give(connection)
            raise

    def turn(
        self, connection: ServerConnection, session: str, steps: Sequence[Any], within: float
    ) -> Mapping[str, Any]:
        """Take a session through `steps`; the reply's JSON."""
        return connection.ask("POST", f"{ROOT}/sessions/{session}", {"steps": list(steps)}, within=within).body

    def propose(self, connection: ServerConnection, session: str, steps: Sequence[Any]) -> Mapping[str, Any]:
        """A turn within the time of one proposal."""
        return self.turn(connection, session, steps, self._config.timeout)

    def settled(self, error: Exception | None) -> None:
        """A session's exchange ended so: what the breaker has to know."""
        if error is None:
            self._breaker.succeeded()
        else:
            self._breaker.failed(error)

    def release(self, connection: ServerConnection) -> None:
        self._connections.give(connection)

    def _wanted(self, target: TargetPin) -> dict[str, Any]:
        described = described_target(target, paths=bool(self._config.address.socket))
        return {"protocol": PROTOCOL, "target": described, "n_ctx": self._n_ctx}


class NativeSession:
    """One session on a draft host. After an error it is over: every further call but `close` raises the error again."""

    def __init__(
        self, link: NativeLink, connection: ServerConnection, session: str, prompt: Sequence[int], n_vocab: int
    ) -> None:
        self._link = link
        self._connection = connection
        self._id = session
        self._n_vocab = n_vocab
        self._digest = RunningDigest(prompt)
        self._steps: list[Any] = []  # not sent yet
        self._kept = 0  # ids in them
        self._over: Exception | None = None

    def propose(self, k: int) -> Proposal:
        if k <= 0:
            return EMPTY
        return self._attempt(lambda: self._proposal(self._exchange(["propose", k]), k))

    def commit(self, tokens: Sequence[int]) -> Ack:
        self._check()
        ack = self._digest.commit(tokens)
        self._steps.append(["commit", list(tokens)])
        self._kept += len(tokens)
        if self._kept > MAX_KEPT:
            self._attempt(self._exchange)
        return ack

    def rollback(self) -> Ack:
        self._check()
        if self._steps[-1:] != [["rollback"]]:
            self._steps.append(["rollback"])
        return self._digest.ack()

    def close(self) -> None:
        if self._over is None:
            # What was committed last is still worth sending: the drafter may learn from it.
            steps = [*self._steps, ["close"]]
            with contextlib.suppress(PilotfishError):
                self._link.turn(self._connection, self._id, steps, CLOSE_WITHIN)
        self._link.release(self._connection)

    def compare(self, answer: Mapping[str, Any]) -> None:
        """Raise ProtocolViolation unless the host acknowledges this very history."""
        ack = Ack(answer.get("round", -1), answer.get("position", -1), str(answer.get("digest", "")))
        if ack != self._digest.ack():
            raise ProtocolViolation(
                f"{self._link.url}: acknowledged {ack}, but the committed history is {self._digest.ack()}; "
                "its drafter is not used for this request"
            )

    def _exchange(self, *last: Any) -> Mapping[str, Any]:
        """Send what waits, then `last`; the reply, whose history is this one."""
        steps = [*self._steps, *last]
        self._steps, self._kept = [], 0
        answer = self._link.propose(self._connection, self._id, steps)
        self.compare(answer)
        return answer

    def _proposal(self, answer: Mapping[str, Any], k: int) -> Proposal:
        proposal = Proposal(answer.get("tokens", ()), answer.get("confidence", ()))
        try:
            return checked(proposal, self._n_vocab, k)
        except ProtocolViolation as error:
            raise ProtocolViolation(f"{self._link.url}: {error}") from error

    def _attempt(self, call: Callable[[], T]) -> T:
        self._check()
        try:
            result = call()
        except Exception as error:
            self._over = error
            self._connection.close()
            self._link.settled(error)
            raise
        self._link.settled(None)
        return result

    def _check(self) -> None:
        if self._over is not None:
            raise WorldError(f"this session ended with an error: {self._over}") from self._over


def described_target(target: TargetPin, *, paths: bool) -> dict[str, Any]:
    """A target pin as JSON. Paths are for a host on the same machine only."""
    tokenizer = target.tokenizer
    return {
        "name": target.name,
        "weights": [
            {"digest": weight.digest, "size": weight.size, **({"path": str(weight.path)} if paths else {})}
            for weight in target.weights
        ],
        "tokenizer": {name: getattr(tokenizer, name) for name in _TOKENIZER},
        "manifest_digest": target.manifest_digest,
        "format": target.format,
        "architecture": target.architecture,
        "quantization": target.quantization,
    }


_TOKENIZER = ("fingerprint", "model", "n_vocab", "bos", "eos", "add_bos", "add_eos")
