"""Completion and chat servers: what they are asked, and what is made of their answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pilotfish.hooks.errors import ModelNotFound, ProtocolViolation, WorldError
from pilotfish.hooks.history import History
from pilotfish.hooks.types import EMPTY, EngineOptions, TargetPin, TokenizerPin, WeightPin
from pilotfish.hooks.vocabulary import ByteVocabulary
from pilotfish.lab.conformance import DrafterConformance
from pilotfish.lab.fakes import FakeClock, fake_pin
from pilotfish.plugins.drafters._remote import completion
from pilotfish.plugins.drafters.remote import RemoteDrafter
from tests.fakes.far import json_server, local_host

OPTIONS = EngineOptions(n_ctx=512)
TEXT = "The quick brown fox jumps over the lazy dog. " * 20


class FakeServer:
    """Continues `TEXT`, in the shape of one server; `asked` holds every body that was posted."""

    def __init__(self, kind: str, *, ids: bool = True, models: tuple[str, ...] = ("small",)) -> None:
        self.kind = kind
        self.ids = ids
        self.models = models
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.reply: Any = None  # instead of a continuation

    def __call__(self, path: str, body: Mapping[str, Any]) -> Any:
        if body:
            self.asked.append((path, body))
        owner = "vllm" if self.kind == "vllm" else "library"
        known = {
            "/v1/models": {"data": [{"id": name, "owned_by": owner} for name in self.models]},
            "/props": {"default_generation_settings": {}} if self.kind == "llama" else None,
            "/api/version": {"version": "0.13.0"} if self.kind == "ollama" else None,
        }
        if known.get(path):
            return known[path]
        shapes = {
            ("llama", "/completion"): self._llama,
            ("vllm", "/v1/completions"): self._vllm,
            ("ollama", "/api/chat"): lambda body: {"message": {"content": self._chat(body)}},
            ("openai", "/v1/chat/completions"): lambda body: {"choices": [{"message": {"content": self._chat(body)}}]},
            ("vllm", "/v1/chat/completions"): lambda body: {"choices": [{"message": {"content": self._chat(body)}}]},
        }
        if (self.kind, path) not in shapes:
            return 404, {"error": "not found"}, {}
        return shapes[self.kind, path](body) if self.reply is None else self.reply

    def _llama(self, body: Mapping[str, Any]) -> Any:
        prompt, n = body["prompt"], body["n_predict"]
        if isinstance(prompt, str):
            return {"content": continued(prompt, n), "tokens": []}
        return {"content": "?", "tokens": [(prompt[-1] + 1 + i) % 32 for i in range(n)]}

    def _vllm(self, body: Mapping[str, Any]) -> Any:
        prompt, n = body["prompt"], body["max_tokens"]
        if isinstance(prompt, str):
            return {"choices": [{"text": continued(prompt, n)}]}
        choice: dict[str, Any] = {"text": "?"}
        if self.ids and body.get("return_token_ids"):
            choice["token_ids"] = [(prompt[-1] + 1 + i) % 32 for i in range(n)]
        return {"choices": [choice]}

    def _chat(self, body: Mapping[str, Any]) -> str:
        return continued("".join(message["content"] for message in body["messages"]), 40)


def continued(text: str, n: int) -> str:
    """What follows the last words of `text` in `TEXT`, `n` tokens of four letters."""
    at = TEXT.find(text[-8:])
    return TEXT[at + len(text[-8:]) :][: 4 * n] if at >= 0 else "unheard of"


def remote(url: str, dialect: str, target: TargetPin | None = None, **table: object) -> RemoteDrafter:
    drafter = RemoteDrafter({"url": url, "dialect": dialect, **table})
    drafter.load(local_host(Path("/nonexistent")), target or fake_pin(), OPTIONS)
    return drafter


@pytest.fixture
def same_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's tokenizer counts as the target's."""
    monkeypatch.setattr(completion, "difference", lambda detokenize, target: "")


@pytest.mark.usefixtures("same_tokenizer")
class TestIdsOfLlamaServer(DrafterConformance):
    kind = "llama"

    @pytest.fixture
    def server(self) -> FakeServer:
        return FakeServer(self.kind)

    @pytest.fixture
    def drafter(self, server: FakeServer) -> Iterator[RemoteDrafter]:
        with json_server(server) as url:
            drafter = remote(url, "completion")
            yield drafter
            drafter.unload()

    def test_the_whole_history_travels_as_ids(self, server: FakeServer, drafter: RemoteDrafter) -> None:
        assert drafter.vocabulary is None
        session = drafter.open(fake_pin(), [5, 6])
        session.commit([7])
        assert session.propose(3).tokens == (8, 9, 10)
        path, body = server.asked[-1]
        assert body["prompt"] == [5, 6, 7]
        assert body["temperature"] == 0
        assert path == ("/completion" if self.kind == "llama" else "/v1/completions")


class TestIdsOfVllm(TestIdsOfLlamaServer):
    kind = "vllm"


class TestTextOfLlamaServer(DrafterConformance):
    """A server whose tokenizer is another one, or cannot be compared, is sent text."""

    @pytest.fixture
    def drafter(self) -> Iterator[RemoteDrafter]:
        with json_server(FakeServer("llama")) as url:
            drafter = remote(url, "completion")
            assert isinstance(drafter.vocabulary, ByteVocabulary)
            yield drafter
            drafter.unload()

    @pytest.fixture
    def target(self) -> TargetPin:
        return fake_pin(256)

    @pytest.fixture
    def prompt(self) -> list[int]:
        return list(b"The quick brown ")

    def test_its_suggestion_continues_the_bytes(self, drafter: RemoteDrafter) -> None:
        session = drafter.open(fake_pin(), list(b"The quick brown "))
        assert bytes(session.propose(9).tokens) == b"fox jumps"
        session.close()


class TestChatOfOllama(TestTextOfLlamaServer):
    kind = "ollama"

    @pytest.fixture
    def drafter(self) -> Iterator[RemoteDrafter]:
        with json_server(FakeServer(self.kind)) as url:
            drafter = remote(url, "chat")
            yield drafter
            drafter.unload()


class TestChatOfOpenAI(TestChatOfOllama):
    kind = "openai"


@pytest.mark.usefixtures("same_tokenizer")
def test_a_completion_server_that_gives_no_ids_is_sent_text():
    with json_server(FakeServer("vllm", ids=False)) as url:
        drafter = remote(url, "completion")
        assert isinstance(drafter.vocabulary, ByteVocabulary)
        session = drafter.open(fake_pin(), list(b"The quick "))
        assert bytes(session.propose(5).tokens) == b"brown"
        drafter.unload()


@pytest.mark.usefixtures("same_tokenizer")
@pytest.mark.parametrize("tokens", [[40_000], [-1], [True], "12", None])
def test_junk_for_ids_is_an_error(tokens):
    server = FakeServer("llama")
    with json_server(server) as url:
        drafter = remote(url, "completion")
        session = drafter.open(fake_pin(), [1, 2])
        server.reply = {"content": "", "tokens": tokens}
        with pytest.raises(ProtocolViolation, match=url):
            session.propose(4)
        drafter.unload()


@pytest.mark.usefixtures("same_tokenizer")
def test_a_server_that_fails_is_asked_again_later_and_the_session_lives():
    server = FakeServer("llama")
    with json_server(server) as url:
        drafter = remote(url, "completion")
        session = drafter.open(fake_pin(), [1, 2])
        server.reply = 500, {"error": "no"}, {}
        for _ in range(3):
            with pytest.raises(WorldError, match="500"):
                session.propose(2)
        asked = len(server.asked)
        assert session.propose(2) == EMPTY
        assert len(server.asked) == asked
        assert "failed 3 times" in drafter.status()
        assert session.commit([3]) == History([1, 2]).commit([3])
        drafter.unload()


def test_the_first_session_after_a_rest_asks_again():
    server, clock = FakeServer("ollama"), FakeClock()
    with json_server(server) as url:
        drafter = RemoteDrafter({"url": url, "dialect": "chat"}, clock)
        drafter.load(local_host(Path("/nonexistent")), fake_pin(), OPTIONS)
        session = drafter.open(fake_pin(), list(b"The quick "))
        server.reply = 500, {"error": "no"}, {}
        for _ in range(3):
            with pytest.raises(WorldError, match="500"):
                session.propose(5)
        with pytest.raises(WorldError, match="failed 3 times in a row"):
            drafter.open(fake_pin(), list(b"The quick "))
        clock.advance(1)
        server.reply = None
        assert drafter.open(fake_pin(), list(b"The quick ")).propose(5)
        assert drafter.status().endswith("answers")
        drafter.unload()


def test_a_draft_hosts_secret_is_not_shown_to_other_servers(monkeypatch):
    monkeypatch.setenv("PILOTFISH_DRAFT_TOKEN", "a-secret-of-sixteen-letters")
    for dialect, shown in (("pilotfish", True), ("completion", False), ("chat", False)):
        assert bool(RemoteDrafter({"url": "http://x", "dialect": dialect}).config.access().token) == shown


@pytest.mark.usefixtures("same_tokenizer")
def test_a_request_that_the_server_refuses_is_not_repeated():
    server = FakeServer("llama")
    with json_server(server) as url:
        drafter = remote(url, "completion")
        session = drafter.open(fake_pin(), [1, 2])
        server.reply = 400, {"error": {"message": "the request exceeds the available context size"}}, {}
        assert session.propose(2) == EMPTY
        asked = len(server.asked)
        assert session.propose(2) == EMPTY
        assert len(server.asked) == asked
        assert drafter.status().endswith("answers")
        drafter.unload()


def test_what_was_written_is_replayed_as_the_beginning_of_the_answer():
    server = FakeServer("ollama")
    with json_server(server) as url:
        drafter = remote(url, "chat")
        session = drafter.open(fake_pin(), list(b"Say it."))
        session.propose(4)
        session.commit(list(b"The quick "))
        assert bytes(session.propose(5).tokens) == b"brown"
        assert [(m["role"], m["content"]) for m in server.asked[-1][1]["messages"]] == [
            ("user", "Say it."),
            ("assistant", "The quick "),
        ]
        drafter.unload()


def test_a_suggestion_serves_as_many_rounds_as_it_was_right():
    server = FakeServer("ollama")
    with json_server(server) as url:
        drafter = remote(url, "chat")
        session = drafter.open(fake_pin(), list(b"The quick "))
        assert bytes(session.propose(5).tokens) == b"brown"
        asked = len(server.asked)
        session.commit(list(b"brown "))
        assert bytes(session.propose(5).tokens) == b"fox j"
        assert len(server.asked) == asked
        session.commit(list(b"cow"))
        session.propose(5)
        assert len(server.asked) == asked + 1
        drafter.unload()


def test_an_echoed_beginning_is_no_part_of_the_suggestion():
    server = FakeServer("openai")
    with json_server(server) as url:
        drafter = remote(url, "chat")
        session = drafter.open(fake_pin(), list(b"Say it."))
        session.commit(list(b"The quick brown fox "))
        server.reply = {"choices": [{"message": {"content": "The quick brown fox jumps"}}]}
        assert bytes(session.propose(20).tokens) == b"jumps"
        drafter.unload()


def test_vllm_is_told_to_continue_and_not_to_answer():
    server = FakeServer("vllm")
    with json_server(server) as url:
        drafter = remote(url, "chat")
        session = drafter.open(fake_pin(), list(b"Say it."))
        session.commit(list(b"The quick "))
        session.propose(5)
        assert server.asked[-1][1]["continue_final_message"] is True
        assert server.asked[-1][1]["add_generation_prompt"] is False
        drafter.unload()


@pytest.mark.parametrize("written", [b"x" * 31, "🐟".encode()[:3], b"\xff\xfe"])
def test_nothing_is_asked_about_a_text_that_is_too_long_or_no_text(written):
    server = FakeServer("ollama")
    with json_server(server) as url:
        drafter = remote(url, "chat", max_bytes=30)
        session = drafter.open(fake_pin(), [])
        session.commit(list(written))
        asked = len(server.asked)
        assert session.propose(8) == EMPTY
        assert len(server.asked) == asked
        drafter.unload()


@pytest.mark.parametrize(
    ("content", "k", "proposed"), [("né", 2, b"n"), ("né", 3, "né".encode()), ("a\ufffdb", 9, b"a")]
)
def test_only_whole_characters_are_suggested(content, k, proposed):
    server = FakeServer("ollama")
    with json_server(server) as url:
        drafter = remote(url, "chat")
        server.reply = {"message": {"content": content}}
        session = drafter.open(fake_pin(), list(b"Say it."))
        assert bytes(session.propose(k).tokens) == proposed
        drafter.unload()


@pytest.mark.parametrize("reply", [{}, {"message": {"content": None}}, {"message": "x"}])
def test_an_answer_without_a_message_is_no_chat_servers(reply):
    server = FakeServer("ollama")
    server.reply = reply
    with json_server(server) as url, pytest.raises(ProtocolViolation, match='dialect = "completion"'):
        remote(url, "chat")


def test_the_model_is_the_one_that_is_named_or_the_first():
    server = FakeServer("ollama", models=("small", "large:latest"))
    with json_server(server) as url:
        for wanted, used in (("", "small"), ("large", "large:latest")):
            drafter = remote(url, "chat", model=wanted)
            assert server.asked[-1][1]["model"] == used
            assert drafter.status().startswith(f"{used} at {url}")
            drafter.unload()
        with pytest.raises(ModelNotFound, match="has no model 'huge'; it has: small, large:latest"):
            remote(url, "chat", model="huge")


class TestTheTokenizerProof:
    """Ids are exchanged only with a server that spells every ordinary id of the target's GGUF as the target does."""

    def test_an_equal_one_is_shown_to_be_equal(self, smollm2_path, spelled):
        with json_server(spelled) as url:
            drafter = remote(url, "completion", pin(smollm2_path))
            assert drafter.vocabulary is None
            drafter.unload()

    def test_one_swapped_pair_is_found(self, smollm2_path, spelled):
        spelled.texts[1000], spelled.texts[1001] = spelled.texts[1001], spelled.texts[1000]
        with json_server(spelled) as url:
            drafter = remote(url, "completion", pin(smollm2_path))
            assert isinstance(drafter.vocabulary, ByteVocabulary)
            drafter.unload()

    def test_a_target_that_cannot_be_read_shows_nothing(self, spelled, tmp_path):
        (tmp_path / "broken.gguf").write_bytes(b"GGUF\x03\x00\x00\x00" + b"\xff" * 64)
        with json_server(spelled) as url:
            drafter = remote(url, "completion", pin(tmp_path / "broken.gguf"))
            assert isinstance(drafter.vocabulary, ByteVocabulary)
            drafter.unload()

    @pytest.fixture
    def spelled(self, smollm2_path: Path) -> Spelling:
        from pilotfish.plugins.drafters._remote.tokenizer import ordinary_tokens

        return Spelling(dict(ordinary_tokens(smollm2_path)))


class Spelling(FakeServer):
    """A llama-server that detokenizes."""

    def __init__(self, texts: dict[int, str]) -> None:
        super().__init__("llama")
        self.texts = texts

    def __call__(self, path: str, body: Mapping[str, Any]) -> Any:
        if path == "/detokenize":
            return {"content": "".join(self.texts[token] for token in body["tokens"])}
        return super().__call__(path, body)


def pin(path: Path) -> TargetPin:
    return TargetPin("smollm2:135m", (WeightPin("sha256:0", path, 0),), TokenizerPin("f", "gpt2", 49152))
