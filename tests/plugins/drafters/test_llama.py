"""A small GGUF that drafts through libllama: what it proposes, what it takes, and that no token changes."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.hooks.errors import ConfigError, EngineError
from pilotfish.hooks.protocols import Drafter, LoadableDrafter
from pilotfish.hooks.types import EngineOptions, Proposal, SamplingParams, TargetPin
from pilotfish.lab.conformance import DrafterConformance
from pilotfish.lab.fakes import fake_pin
from pilotfish.manifests.pins import pin_file
from pilotfish.plugins.drafters.llama import LlamaDrafter
from tests.fakes.session import answer
from tests.plugins.drafters.tiny_llama import write_tiny_llama
from tests.plugins.verifiers.tiny_gguf import write_mamba, write_sliding_window

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

GREEDY = SamplingParams(temperature=0)
SEEDED = SamplingParams(temperature=0.8, seed=42, repeat_penalty=1.1)
CHAT = "<|im_start|>user\nWrite ten lines, each starting with Alpha.<|im_end|>\n<|im_start|>assistant\n"
LONG = "Alpha beta gamma delta. " * 50 + CHAT  # beyond 256 positions, where ggml's attention changes its code


class FileHost:
    """Pins .gguf files, and remembers what it was asked for."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.asked: list[str] = []

    def pin(self, model: str) -> TargetPin:
        self.asked.append(model)
        return pin_file(Path(model), self.state_dir)

    def lease(self, device: str) -> AbstractContextManager[object]:
        return nullcontext()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> FileHost:
    return FileHost(tmp_path_factory.mktemp("drafters"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, smollm2_path: Path) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf", smollm2_path)


Load = Callable[..., LlamaDrafter]


def alike(one: Proposal, other: Proposal) -> bool:
    """Whether two proposals come from the same history.

    The ids are the same. The confidences are so only nearly where a history was read in blocks of other sizes: a
    drafter promises nothing about its last bits, and a key that is rounded to 16 bits the other way moves what follows
    by some 2^-11. A history that differs by one token moves it by far more than a hundredth.
    """
    return one.tokens == other.tokens and one.confidence == pytest.approx(other.confidence, rel=0.01)


@pytest.fixture(scope="module")
def load(host: FileHost) -> Iterator[Load]:
    """`load(path, n_ctx=..., **table)`: a loaded drafter, unloaded at the end."""
    drafters: list[LlamaDrafter] = []

    def loaded(path: Path, n_ctx: int = 1024, **table: Any) -> LlamaDrafter:
        drafter = LlamaDrafter({"model": str(path), **table})
        drafters.append(drafter)
        drafter.load(host, fake_pin(), EngineOptions(n_ctx=n_ctx))
        return drafter

    yield loaded
    for drafter in drafters:
        drafter.unload()


@pytest.fixture(scope="module")
def itself(load: Load, smollm2_path: Path) -> LlamaDrafter:
    """SmolLM2, to draft for SmolLM2, however sure it is."""
    return load(smollm2_path, min_confidence=0)


@pytest.fixture(scope="module")
def small(load: Load, tiny: Path) -> LlamaDrafter:
    return load(tiny, n_ctx=512, min_confidence=0)


@pytest.mark.model
class TestConformance(DrafterConformance):
    @pytest.fixture
    def drafter(self, small: LlamaDrafter) -> Drafter:
        return small

    @pytest.fixture
    def target(self) -> TargetPin:
        return fake_pin(49152)

    def test_it_proposes_at_all(self, drafter: Drafter, target: TargetPin, prompt: Sequence[int]) -> None:
        with closing(drafter.open(target, prompt)) as session:
            assert len(session.propose(7)) > 0


@pytest.mark.model
@pytest.mark.parametrize("text", [CHAT, LONG], ids=["short", "long"])
def test_smollm2_drafting_for_itself_is_never_rejected(engine: CellEngine, itself: LlamaDrafter, text: str) -> None:
    request = GenerationRequest(tuple(engine.tokenizer.encode(text)), GREEDY, n_predict=32)
    plain = answer(engine, request)
    itself.open(fake_pin(), request.prompt).close()  # so that it is ready from the first rounds on
    drafted = answer(engine, request, [itself], most=7, deadline=30)
    assert drafted.ids == plain.ids
    counts = drafted.outcome.timings
    assert counts.draft_n_accepted == counts.draft_n
    assert counts.draft_n > len(plain.ids) / 2


@pytest.mark.model
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_a_drafter_that_knows_nothing_changes_no_token(
    engine: CellEngine, small: LlamaDrafter, sampling: SamplingParams
) -> None:
    request = GenerationRequest(tuple(engine.tokenizer.encode(CHAT)), sampling, n_predict=32)
    plain = answer(engine, request)
    drafted = answer(engine, request, [small], most=5, deadline=30)
    assert drafted.ids == plain.ids
    assert drafted.outcome.timings.draft_n > drafted.outcome.timings.draft_n_accepted


@pytest.mark.model
def test_rejections_plain_stretches_and_other_sessions_leave_no_trace_in_its_guesses(
    engine: CellEngine, itself: LlamaDrafter
) -> None:
    prompt = engine.tokenizer.encode(CHAT)
    words = engine.tokenizer.encode("Alpha is the first letter. Alpha comes before beta.")
    with closing(itself.open(fake_pin(), prompt)) as session:
        session.propose(6)
        session.commit(words[:2])  # rejects
        session.propose(3)
        session.rollback()
        for token in words[2:9]:  # a stretch
            session.commit([token])
        with closing(itself.open(fake_pin(), words)) as other:
            other.propose(2)
        session.commit(words[9:])
        worn = session.propose(6)
    itself.open(fake_pin(), [1]).close()  # nothing to reuse is left
    with closing(itself.open(fake_pin(), [*prompt, *words])) as session:
        assert alike(session.propose(6), worn)
    with closing(itself.open(fake_pin(), [*prompt, *words[1:]])) as session:
        assert not alike(session.propose(6), worn)
    assert len(worn) > 0


@pytest.mark.model
@pytest.mark.parametrize("n", [15, 16, 17, 48])
def test_a_prompt_longer_than_a_block_is_fed_in_several(host: FileHost, small: LlamaDrafter, n: int) -> None:
    blocks = LlamaDrafter({"model": small.model, "min_confidence": 0})
    blocks.load(host, fake_pin(), EngineOptions(n_ctx=256, batch_size=16))
    prompt = list(range(300, 300 + n))
    with closing(blocks.open(fake_pin(), prompt)) as session, closing(small.open(fake_pin(), prompt)) as other:
        assert alike(session.propose(4), other.propose(4))
    blocks.unload()


@pytest.mark.model
def test_its_vocabulary_is_the_models(itself: LlamaDrafter, host: FileHost, smollm2_path: Path) -> None:
    vocabulary = itself.vocabulary
    assert isinstance(itself, LoadableDrafter)
    assert vocabulary is not None
    assert vocabulary.pin == host.pin(str(smollm2_path)).tokenizer
    assert b"".join(map(vocabulary.piece, vocabulary.encode("Ahoy <|im_end|>"))) == b"Ahoy <|im_end|>"
    assert vocabulary.special(2)
    assert not vocabulary.special(100)


@pytest.mark.model
@pytest.mark.parametrize("kind", ["smollm2", "tiny", "sliding window"])
@pytest.mark.parametrize("table", [{}, {"cache_type_k": "f32", "context": 512}], ids=["default", "f32"])
def test_the_footprint_is_what_libllama_takes(
    host: FileHost, smollm2_path: Path, tiny: Path, tmp_path: Path, kind: str, table: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    paths = {"smollm2": lambda: smollm2_path, "tiny": lambda: tiny}
    path = paths.get(kind, lambda: write_sliding_window(tmp_path / "window.gguf"))()
    drafter, options = LlamaDrafter({"model": str(path), **table}), EngineOptions(n_ctx=2048)
    footprint = drafter.footprint(host, fake_pin(), options)
    with caplog.at_level(logging.DEBUG, logger="pilotfish.llama"):
        drafter.load(host, fake_pin(), options)
        drafter.unload()
    cells, work = reported(caplog, "KV"), reported(caplog, "compute") + reported(caplog, "output")
    weights = reported(caplog, "model")
    assert footprint.device == "cpu"
    assert weights <= footprint.weights <= weights + 4 * 2**20  # the header, with the vocabulary, is in the file too
    assert cells + work <= footprint.cache <= cells + 1.5 * work + 2**20


def reported(caplog: pytest.LogCaptureFixture, what: str) -> float:
    """Bytes of a kind of buffer, as libllama's log says."""
    found = re.findall(rf"{what} buffer size = +([0-9.]+) MiB", caplog.text)
    assert found
    return sum(map(float, found)) * 2**20


@pytest.mark.model
def test_a_footprint_loads_nothing(host: FileHost, tiny: Path) -> None:
    drafter = LlamaDrafter({"model": str(tiny)})
    drafter.footprint(host, fake_pin(), EngineOptions())
    assert drafter.vocabulary is None
    assert host.asked[-1] == str(tiny)


@pytest.mark.model
def test_after_unloading_an_open_session_fails_cleanly_and_loading_again_works(host: FileHost, tiny: Path) -> None:
    drafter = LlamaDrafter({"model": str(tiny), "min_confidence": 0})
    drafter.load(host, fake_pin(), EngineOptions(n_ctx=256))
    session, vocabulary = drafter.open(fake_pin(), [5, 6, 7]), drafter.vocabulary
    before = session.propose(3)
    drafter.unload()
    drafter.unload()
    session.commit([9])
    with pytest.raises(EngineError, match="unloaded"):
        session.propose(3)
    session.close()
    assert vocabulary is not None
    with pytest.raises(EngineError, match="closed"):
        vocabulary.encode("anything")
    with pytest.raises(EngineError, match="not loaded"):
        drafter.open(fake_pin(), [5])
    drafter.load(host, fake_pin(), EngineOptions(n_ctx=256))
    with closing(drafter.open(fake_pin(), [5, 6, 7])) as again:
        assert again.propose(3) == before
    drafter.unload()


@pytest.mark.model
def test_a_sliding_window_drafts_and_takes_back_what_lies_beyond_it(load: Load, tmp_path: Path) -> None:
    drafter = load(write_sliding_window(tmp_path / "window.gguf", window=8), n_ctx=256, min_confidence=0)
    prompt = [1, *range(70, 90)]
    with closing(drafter.open(fake_pin(), prompt)) as session:
        for token in range(100, 112):
            session.propose(12)
            session.commit([token])
        worn = session.propose(5)
    drafter.open(fake_pin(), [2]).close()
    with closing(drafter.open(fake_pin(), [*prompt, *range(100, 112)])) as session:
        assert alike(session.propose(5), worn)
    with closing(drafter.open(fake_pin(), [*prompt, *range(100, 111), 113])) as session:
        assert not alike(session.propose(5), worn)


@pytest.mark.model
def test_a_model_that_cannot_take_tokens_back_is_refused_by_name(load: Load, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"recurrent\.gguf.*take back"):
        load(write_mamba(tmp_path / "recurrent.gguf"), n_ctx=256)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "drafters.llama.model: expected the name"),
        ({"model": 3}, "drafters.llama.model: expected the name"),
        ({"model": "x", "min_confidence": 2}, "drafters.llama.min_confidence"),
        ({"model": "x", "cache_type_k": "f17"}, "drafters.llama.cache_type_k: expected one of"),
        ({"model": "x", "context": -1}, "drafters.llama.context"),
    ],
)
def test_a_wrong_table_is_refused_with_the_keys_path(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LlamaDrafter(table)


def test_without_libllama_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, host: FileHost, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pilotfish.plugins._llama.library", None)
    monkeypatch.setattr(host, "pin", lambda model: fake_pin())
    drafter = LlamaDrafter({"model": "small:1b"})
    for call in (drafter.footprint, drafter.load):
        with pytest.raises(EngineError, match=r"pip install 'pilotfish\[llama\]'"):
            call(host, fake_pin(), EngineOptions())
