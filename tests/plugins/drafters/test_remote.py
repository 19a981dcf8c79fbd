"""The native draft protocol, from this side: over a draft host in another process, and over one in a thread."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.drafthost.listening import Endpoint
from pilotfish.daemon.lab.fakes.fake_vocabulary import FakeVocabulary
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import ConfigError, WorldError
from pilotfish.hooks.history import History
from pilotfish.hooks.protocols import Bridge, LoadableDrafter, Vocabulary
from pilotfish.hooks.types import EngineOptions, Placement, Proposal, SamplingParams, TargetPin, TokenizerPin
from pilotfish.hooks.vocabulary import ByteVocabulary
from pilotfish.lab.conformance import DrafterConformance
from pilotfish.lab.fakes import FakeEngine, ScriptedDrafter, fake_pin
from pilotfish.plugins.drafters.remote import RemoteDrafter
from tests.fakes.far import DraftHost, delayed, draft_host, local_host, run_in_namespace, serving
from tests.fakes.session import answer

ANYWHERE = Endpoint(port=0)
SECRET = "a-secret-of-sixteen-letters"
PROMPT = [5, 6, 7, 8]
COUNTED = [
    (9 + i) % 32 for i in range(24)
]  # what the drafter `counting` proposes after PROMPT, and 1 ends nothing here


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DraftHost]:
    """A draft host in another process that serves the drafter `counting`."""
    with draft_host(tmp_path_factory.mktemp("far")) as host:
        yield host


def remote(url: str, folder: Path, target: TargetPin | None = None, **table: object) -> RemoteDrafter:
    """A loaded remote drafter."""
    drafter = RemoteDrafter({"url": url, **table})
    drafter.load(local_host(folder), target or fake_pin(), EngineOptions(n_ctx=512))
    return drafter


def counted_engine() -> FakeEngine:
    return FakeEngine(script=COUNTED, eog=frozenset())


def request() -> GenerationRequest:
    return GenerationRequest(PROMPT, SamplingParams(temperature=0), n_predict=len(COUNTED))


class TestOverAnotherProcess(DrafterConformance):
    @pytest.fixture
    def drafter(self, far: DraftHost, tmp_path: Path) -> Iterator[RemoteDrafter]:
        drafter = remote(far.url, tmp_path)
        yield drafter
        drafter.unload()


def test_it_is_a_drafter_that_loads_elsewhere(far, tmp_path):
    drafter = RemoteDrafter({"url": far.url})
    assert isinstance(drafter, LoadableDrafter)
    assert drafter.placement is Placement.REMOTE
    assert drafter.footprint(local_host(tmp_path), fake_pin(), EngineOptions()) is None
    with pytest.raises(WorldError, match="is not loaded"):
        drafter.open(fake_pin(), PROMPT)


def test_its_proposals_are_verified_like_any_other(far, tmp_path):
    drafter = remote(far.url, tmp_path)
    got = answer(counted_engine(), request(), [drafter])
    assert got.ids == COUNTED
    assert got.outcome.report.accepted > 0
    drafter.unload()


@pytest.mark.parametrize("seconds", [0.005, 0.05])
def test_a_slow_network_changes_no_id(far, tmp_path, seconds):
    with delayed(far.url, seconds) as url:
        drafter = remote(url, tmp_path)
        assert answer(counted_engine(), request(), [drafter]).ids == COUNTED
        drafter.unload()


def test_a_commit_travels_with_the_next_proposal(tmp_path):
    drafter = ScriptedDrafter(lambda history, k: history[-1:] * k)
    with serving(drafter, ANYWHERE) as (url, _):
        near = remote(url, tmp_path)
        session = near.open(fake_pin(), PROMPT)
        session.commit([9])
        session.commit([10, 11])
        assert drafter.sessions[0].commits == []
        assert session.propose(2).tokens == (11, 11)
        assert drafter.sessions[0].commits == [[9], [10, 11]]
        session.commit([12])
        session.close()
        assert drafter.sessions[0].commits[-1] == [12]
        assert drafter.sessions[0].closed == 1
        near.unload()


def test_confidences_travel_too(tmp_path):
    with serving(ScriptedDrafter(lambda history, k: [3] * k, confidence=0.25), ANYWHERE) as (url, _):
        near = remote(url, tmp_path)
        session = near.open(fake_pin(), PROMPT)
        assert session.propose(3) == Proposal((3, 3, 3), (0.25, 0.25, 0.25))
        session.close()
        near.unload()


def test_a_host_that_was_restarted_serves_the_next_session(far, tmp_path):
    drafter = remote(far.url, tmp_path)
    session = drafter.open(fake_pin(), PROMPT)
    assert session.propose(2)
    far.stop()
    with pytest.raises(WorldError, match=r"nothing listens there|is it up"):
        session.propose(2)
    with pytest.raises(WorldError, match="ended with an error"):
        session.commit([1])
    session.close()
    far.start()
    again = drafter.open(fake_pin(), PROMPT)
    assert again.propose(2).tokens == (9, 10)
    again.close()
    assert drafter.status().endswith("answers")
    drafter.unload()


def test_a_host_that_ends_during_an_answer_costs_no_token(tmp_path):
    engine = counted_engine()
    with draft_host(tmp_path) as far:
        drafter = remote(far.url, tmp_path)
        engine.on_forward = lambda width: far.process.kill() if len(engine.widths) == 2 else None
        assert answer(engine, request(), [drafter]).ids == COUNTED
        drafter.unload()


def test_the_secret_opens_and_a_wrong_one_does_not(tmp_path, monkeypatch):
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text(f"{SECRET}\n")
    wrong.write_text("another-secret-altogether")
    with serving(ScriptedDrafter(), Endpoint(port=0, token=SECRET)) as (url, _):
        remote(url, tmp_path, token_file=str(right)).unload()
        for table in ({"token_file": str(wrong)}, {}):
            with pytest.raises(WorldError, match=r"401.*secret.*token_file"):
                remote(url, tmp_path, **table)
        monkeypatch.setenv("PILOTFISH_DRAFT_TOKEN", SECRET)
        remote(url, tmp_path).unload()


def test_a_unix_socket_is_an_address(tmp_path):
    with serving(ScriptedDrafter(lambda history, k: [4] * k), Endpoint(socket=tmp_path / "s")) as (url, _):
        near = remote(url, tmp_path)
        session = near.open(fake_pin(), PROMPT)
        assert session.propose(1).tokens == (4,)
        session.close()
        near.unload()


class Spelled:
    """A bridge from ids that each spell one byte, 100 more than the id, to bytes."""

    def to_drafter(self, target_ids: Sequence[int]) -> Sequence[int]:
        return [byte - 100 for byte in target_ids]

    def to_target(self, proposal: Proposal) -> Proposal:
        return Proposal(tuple(token + 100 for token in proposal.tokens), proposal.confidence)


class SpellingDrafter(ScriptedDrafter):
    """Has a vocabulary of its own."""

    def __init__(self) -> None:
        super().__init__(lambda history, k: [history[-1] + 1] * k)
        self.vocabulary = FakeVocabulary(TokenizerPin("spelling", "fake", 32), [bytes([100 + i]) for i in range(32)])


def bridges(bridge: Bridge) -> Registry:
    """A registry in which `bridge` joins the spelling vocabulary to bytes."""

    class Found(Registry):
        def bridge(self, drafter: Vocabulary, target: Vocabulary) -> tuple[str, Bridge] | None:
            fits = drafter.pin.fingerprint == "spelling" and target.pin == ByteVocabulary.pin
            return ("spelled", bridge) if fits else None

    return Found(Config())


class TestInBytes(DrafterConformance):
    """A drafter with another tokenizer than the target's is spoken to in bytes, and bridged over there."""

    @pytest.fixture
    def drafter(self, tmp_path: Path) -> Iterator[RemoteDrafter]:
        with serving(SpellingDrafter(), ANYWHERE, registry=bridges(Spelled())) as (url, _):
            drafter = remote(url, tmp_path)
            yield drafter
            drafter.unload()

    @pytest.fixture
    def target(self) -> TargetPin:
        return fake_pin(256)

    @pytest.fixture
    def prompt(self) -> Sequence[int]:
        return list(b"defghdef")

    def test_it_says_so(self, drafter: RemoteDrafter) -> None:
        assert isinstance(drafter.vocabulary, ByteVocabulary)
        assert "text" in drafter.status()

    def test_its_drafter_gets_ids_and_its_proposals_come_as_bytes(self, drafter: RemoteDrafter) -> None:
        session = drafter.open(fake_pin(), list(b"abc"))
        assert session.commit(list(b"de")) == (history := History(list(b"abc"))).commit(list(b"de"))
        assert bytes(session.propose(4).tokens) == b"ff"  # an id is worth four bytes, if it has them
        assert session.rollback() == history.ack()
        session.close()


def test_a_vocabulary_that_nothing_joins_to_text_is_refused(tmp_path):
    with (
        serving(SpellingDrafter(), ANYWHERE) as (url, _),
        pytest.raises(WorldError, match="no bridge joins its vocabulary"),
    ):
        remote(url, tmp_path)


def test_an_equal_tokenizer_is_spoken_to_in_ids(tmp_path):
    drafter = SpellingDrafter()
    drafter.vocabulary.pin = fake_pin().tokenizer
    with serving(drafter, ANYWHERE) as (url, _):
        near = remote(url, tmp_path)
        assert near.vocabulary is None
        near.unload()


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({}, "url: missing"),
        ({"url": "rtx:11436"}, "url"),
        ({"url": "ftp://rtx"}, "url"),
        ({"url": "http://me:secret@rtx"}, "url"),
        ({"url": "unix:relative.sock"}, "url"),
        ({"url": "http://rtx:99999"}, "url"),
        ({"url": 5}, "url"),
        ({"url": "http://rtx", "dialect": "grpc"}, "dialect"),
        ({"url": "http://rtx", "timeout_s": 0}, "timeout_s"),
        ({"url": "http://rtx", "max_bytes": True}, "max_bytes"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(table, key):
    with pytest.raises(ConfigError, match=rf"^drafters\.remote\.{key}"):
        RemoteDrafter(table)


def test_a_draft_hosts_port_may_be_left_out():
    assert RemoteDrafter({"url": "http://rtx"}).config.address.port == 11436
    assert RemoteDrafter({"url": "http://rtx", "dialect": "chat"}).config.address.port == 80
    assert RemoteDrafter({"url": "https://rtx/up/"}).config.address.base == "/up"


def test_a_missing_secret_or_certificate_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"drafters\.remote\.token_file: .*nowhere"):
        remote("http://127.0.0.1:1", tmp_path, token_file=str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"drafters\.remote\.cafile: .*nowhere"):
        remote("https://127.0.0.1:1", tmp_path, cafile=str(tmp_path / "nowhere"))


IN_A_NAMESPACE = """
import sys
from pathlib import Path
from tests.plugins.drafters.test_remote import COUNTED, answer, counted_engine, remote, request
from tests.fakes.far import draft_host
with draft_host(Path(sys.argv[1])) as far:
    drafter = remote(far.url, Path(sys.argv[1]))
    got = answer(counted_engine(), request(), [drafter])
    drafter.unload()
assert got.ids == COUNTED, got.ids
"""


def test_a_far_machine_behind_a_slow_link(tmp_path):
    done = run_in_namespace([sys.executable, "-c", IN_A_NAMESPACE, str(tmp_path)], delay_ms=5)
    if done.returncode == 77:
        # The tests above delay the bytes themselves; this one needs rights and a kernel with netem.
        pytest.skip(f"no network namespace with netem here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
