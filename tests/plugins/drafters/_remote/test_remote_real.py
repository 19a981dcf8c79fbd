"""Remote drafters over real servers with a real model: a stock llama-server, and the project's own front."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from pilotfish.daemon.drafters.local_host import LocalHost
from pilotfish.daemon.processes.ports import free_port
from pilotfish.hooks.types import EngineOptions, TargetPin
from pilotfish.hooks.vocabulary import ByteVocabulary
from pilotfish.manifests.store import Store
from pilotfish.plugins.drafters.remote import RemoteDrafter
from tests.manifests.builders import smollm2_path as packaged_smollm2
from tests.server_processes import ServerProcess, answers, running, stock_server
from tests.waiting import wait_until

pytestmark = pytest.mark.model

OPTIONS = EngineOptions(n_ctx=512)
COPY = "red apple, green pear, blue plum, red apple, green pear, blue plum, red apple, green"


@pytest.fixture
def host(tmp_path: Path) -> LocalHost:
    return LocalHost(Store(tmp_path / "models"), tmp_path / "state")


@pytest.fixture
def pin(host: LocalHost, smollm2_path: Path) -> TargetPin:
    return host.pin(str(smollm2_path))


@pytest.fixture(scope="module")
def stock(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("stock") / "log"
    with running(stock_server(), smollm2_path, log, "-c", "512", "-t", "1") as server:
        yield server


@pytest.mark.stock
def test_a_stock_llama_server_with_the_same_model_is_spoken_to_in_ids(stock, host, pin):
    drafter = RemoteDrafter({"url": f"http://127.0.0.1:{stock.port}", "dialect": "completion"})
    drafter.load(host, pin, OPTIONS)
    assert drafter.vocabulary is None
    ids = stock.post("/tokenize", content=COPY).json()["tokens"]
    session = drafter.open(pin, ids)
    first = session.propose(2).tokens
    session.commit(list(first))
    suggested = stock.post("/detokenize", tokens=[*first, *session.propose(6).tokens]).json()["content"]
    assert suggested.startswith(" pear, blue plum")
    drafter.unload()


@pytest.mark.stock
def test_a_stock_llama_server_with_another_tokenizer_is_sent_text(stock, host, pin):
    drafter = RemoteDrafter({"url": f"http://127.0.0.1:{stock.port}", "dialect": "completion"})
    drafter.load(host, replace(pin, tokenizer=replace(pin.tokenizer, n_vocab=1000)), OPTIONS)
    assert isinstance(drafter.vocabulary, ByteVocabulary)
    session = drafter.open(pin, list(COPY.encode()))
    assert bytes(session.propose(16).tokens) == b" pear, blue plum"
    drafter.unload()


@pytest.mark.stock
def test_a_stock_llama_server_chats_too(stock, host, pin):
    drafter = RemoteDrafter({"url": f"http://127.0.0.1:{stock.port}", "dialect": "chat"})
    drafter.load(host, pin, OPTIONS)
    session = drafter.open(pin, list(b"Say hello."))
    assert session.propose(8)
    drafter.unload()


def test_the_front_is_a_chat_server(host, pin, pytestconfig, tmp_path):
    store = Store(tmp_path / "models")
    store.add_gguf("smollm2:135m", packaged_smollm2())
    port = free_port()
    words = [
        sys.executable,
        "-m",
        "pilotfish.daemon.cli",
        "serve",
        "--host",
        f"127.0.0.1:{port}",
        "--models",
        str(store.root),
    ]
    state = str(pytestconfig.cache.mkdir("pilotfish-front") / "state")  # the check of a lane at its first load is slow
    with subprocess.Popen(words, env={**os.environ, "PILOTFISH_STATE": state}) as front:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}") as http:
                wait_until(lambda: answers(front, http, "/api/version"), "the front does not answer")
            drafter = RemoteDrafter({"url": f"http://127.0.0.1:{port}", "dialect": "chat", "timeout_s": 60})
            drafter.load(host, pin, OPTIONS)
            assert isinstance(drafter.vocabulary, ByteVocabulary)
            assert drafter.status().startswith("smollm2:135m at http")
            session = drafter.open(pin, list(b"Name a colour."))
            suggested = session.propose(12)
            assert bytes(suggested.tokens).decode().isprintable()
            session.commit(list(suggested.tokens))
            assert session.propose(12)
            drafter.unload()
        finally:
            front.terminate()
