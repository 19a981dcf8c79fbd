"""Loading: the lane that the check finds, files that cannot be trusted, and memory that comes back."""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from pilotfish.daemon.config.types import Config
from pilotfish.daemon.lab.conformance.verifier_checks import GREEDY, SEEDED, ready
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.errors import BrokenModel, ConfigError, EngineError, ProtocolViolation
from pilotfish.hooks.protocols import Verifier
from pilotfish.hooks.types import EngineOptions, EngineSetting, Lane, TargetPin
from pilotfish.manifests.first_blocks import FOLDER
from pilotfish.plugins._cells import loading
from pilotfish.plugins._cells.lane_check import LaneCheck
from pilotfish.plugins._ik.model import PROMPT_BLOCK, WIDEST
from pilotfish.plugins.verifiers.llama import LlamaVerifier
from tests.engines import GEMMA, VERIFIERS, EngineOf, LoadEngine
from tests.plugins.drafters.tiny_llama import write_tiny_llama
from tests.plugins.verifiers.tiny_gguf import write_llama, write_mamba

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine

ALL_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16)

PinOf = Callable[[Path], TargetPin]


def test_it_registers_under_its_name(verifier: str) -> None:
    registry = Registry.load(Config())
    assert isinstance(registry.verifier(verifier), VERIFIERS[verifier])
    assert isinstance(registry.verifier(verifier), Verifier)
    with pytest.raises(ConfigError, match=rf"verifiers\.{verifier}\.log"):
        VERIFIERS[verifier]({"log": "nowhere"})


@pytest.mark.model
@pytest.mark.parametrize(("quantization", "widths"), [("Q4_1", ALL_WIDTHS), ("Q8_0", ALL_WIDTHS)])
def test_uniform_weights_get_every_width(
    engine_of: Callable[[str], CellEngine], quantization: str, widths: tuple[int, ...]
) -> None:
    engine = engine_of(quantization)
    assert engine.lane.widths == widths
    assert (engine.lane.setting.cache_type_k, engine.lane.setting.cache_type_v) == ("bf16", "f16")
    assert (engine.lane.parity, engine.exact_cache, engine.can_rollback) == ("lane", True, True)


@pytest.mark.model
def test_other_weights_get_at_most_three(engine_of: Callable[[str], CellEngine]) -> None:
    lane = engine_of("Q4_K_M").lane
    assert set(lane.widths) <= {1, 2, 3}
    assert lane.widths[0] == 1


@pytest.mark.model
@pytest.mark.parametrize(
    ("name", "quantization"), [("llama", "Q4_1"), ("llama", "Q8_0"), ("llama", "Q4_K_M"), ("ik", "Q4_K_M")]
)
def test_the_first_blocks_of_a_model_that_is_too_large_for_the_check_show_what_all_of_them_do(
    name: str,
    quantization: str,
    engine_of: EngineOf,
    load_engine: LoadEngine,
    quantized: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = engine_of(quantization, name).lane
    no_time = LaneCheck((1,), False, "no time", complete=False)
    monkeypatch.setattr(loading, "check", lambda context, candidates, **how: no_time)
    engine = load_engine(quantized(quantization), verifier=name, state_dir=tmp_path)
    try:
        assert (engine.lane.widths, engine.lane.max_context) == (whole.widths, whole.max_context)
        assert whole.exact_cache or not engine.lane.exact_cache  # a difference in cells shows the sooner in few blocks
    finally:
        engine.close()
    assert not any((tmp_path / FOLDER).iterdir())


@pytest.mark.model
@pytest.mark.parametrize("weights", ["Q4_1", "Q4_K_M", GEMMA])
def test_every_kind_of_weights_is_tried_in_all_widths_on_ik(engine_of: EngineOf, weights: str) -> None:
    """How many hold depends on the processor: 31 with AVX2. What did not hold is named."""
    engine = engine_of(weights, "ik")
    lane = engine.lane
    assert lane.widths[0] == 1
    assert lane.parity == ("lane" if lane.max_width > 1 else "none")
    assert lane.max_width == WIDEST or f"width {WIDEST}" in lane.reason.replace(", ", ", width ")
    assert engine.can_rollback  # Gemma too, whose window is no smaller a cache
    assert "sliding window" not in lane.reason


@pytest.mark.model
def test_stock_cache_types_are_found_out(smollm2_path: Path, pin_of: PinOf) -> None:
    """The negative control: with equal cache types, blocks differ from single steps past 256 tokens."""
    options = EngineOptions(n_ctx=512, cache_type_k="f16", cache_type_v="f16", threads=2)
    engine = LlamaVerifier().load(pin_of(smollm2_path), None, options)
    try:
        assert engine.lane.widths == (1,)
        assert "270 tokens" in engine.lane.reason
        assert (engine.lane.setting.cache_type_k, engine.lane.setting.cache_type_v) == ("f16", "f16")
    finally:
        engine.close()


@pytest.mark.model
def test_what_the_check_found_is_remembered_until_something_changes(
    smollm2_path: Path, pin_of: PinOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verifier: str
) -> None:
    from pilotfish.plugins._cells import loading as module

    checks = []

    def counted(*args: object, **options: object) -> module.LaneCheck:
        checks.append(args)
        return module.LaneCheck((1, 2), False, "pretended")

    monkeypatch.setattr(module, "check", counted)
    pin, options = pin_of(smollm2_path), EngineOptions(n_ctx=512, state_dir=tmp_path)
    other_digest = replace(pin, weights=(replace(pin.weights[0], digest="sha256:" + "0" * 64),))
    for asked, setting, expected in (
        (pin, options, 1),
        (pin, options, 1),
        (pin, replace(options, n_ctx=1024), 1),
        (pin, replace(options, threads=1), 2),
        (pin, replace(options, cache_type_k="q8_0"), 3),
        (other_digest, options, 4),
    ):
        engine = VERIFIERS[verifier]().load(asked, None, setting)
        assert engine.lane.widths == (1, 2)
        engine.close()
        assert len(checks) == expected
    for damaged in ("{", "[]", json.dumps({"key": 1})):
        (tmp_path / "fingerprints.json").write_text(damaged)
        VERIFIERS[verifier]().load(pin, None, options).close()
    assert len(checks) == 7


@pytest.mark.model
def test_a_given_lane_is_taken_as_it_is(load_engine: LoadEngine, smollm2_path: Path, lane: Lane, verifier: str) -> None:
    lane = replace(lane, widths=(2, 4), setting=replace(lane.setting, cache_type_k="q8_0"))
    engine = load_engine(smollm2_path, lane, n_ctx=256, verifier=verifier)
    try:
        assert engine.lane == lane
        with ready(engine, [5, 6, 7]) as session:
            rows = session.verify([])
            assert len(rows) == 1
            assert session.slot.context.size == 4
            session.commit([rows.pick(0)])
            assert session.slot.context.size == 3
    finally:
        engine.close()


@pytest.mark.model
@pytest.mark.parametrize("kind", ["zeroed", "truncated", "not there", "no tensor"])
def test_a_file_that_cannot_be_trusted_is_named(
    smollm2_path: Path, pin_of: PinOf, tmp_path: Path, kind: str, verifier: str
) -> None:
    path = tmp_path / "blob"
    head = smollm2_path.read_bytes()[: 4 << 20]
    path.write_bytes(
        {"zeroed": bytes(1 << 20), "no tensor": head.replace(b"output_norm", b"output_mron")}.get(kind, head)
    )
    pin = pin_of(path)
    if kind == "not there":
        path.unlink()
    with pytest.raises(BrokenModel) as caught:
        VERIFIERS[verifier]().load(pin, None, EngineOptions(n_ctx=256))
    message = str(caught.value)
    assert str(path) in message
    assert "smollm2:135m" in message
    assert "gave no reason" not in message


@pytest.mark.model
@pytest.mark.parametrize(("verifier", "unknown"), [("llama", "q9_9"), ("ik", "q9_9"), ("ik", "bf16")])
def test_an_unknown_cache_type_is_refused_by_name(
    smollm2_path: Path, pin_of: PinOf, verifier: str, unknown: str
) -> None:
    with pytest.raises(EngineError, match=unknown):
        VERIFIERS[verifier]().load(pin_of(smollm2_path), None, EngineOptions(n_ctx=256, cache_type_k=unknown))


@pytest.fixture
def recurrent(pin_of: PinOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CellEngine]:
    """On a library that writes no state back."""
    from pilotfish.plugins._llama.running_context import RunningContext

    monkeypatch.setattr(RunningContext, "_go_back", lambda self, size, data: False)
    pin = pin_of(write_mamba(tmp_path / "mamba.gguf"))
    engine = LlamaVerifier().load(pin, None, EngineOptions(n_ctx=256, batch_size=16))
    yield engine
    engine.close()


@pytest.mark.model
def test_a_memory_that_cannot_cut_its_tail_decodes_plainly_and_says_why(recurrent: CellEngine) -> None:
    assert not recurrent.can_rollback
    assert recurrent.lane.widths == (1,)
    assert "cannot cut" in recurrent.lane.reason
    prompt = recurrent.tokenizer.encode("hello hello hello")
    answers = []
    for rollbacks in (0, 0, 1):
        with ready(recurrent, prompt, SEEDED) as session:
            for _ in range(6):
                for _ in range(rollbacks):
                    session.verify([]).pick(0)
                    session.rollback()
                session.commit([session.verify([]).pick(0)])
            with pytest.raises(ProtocolViolation):
                session.verify([5])
            answers.append(list(session.history.tokens))
    assert answers[0] == answers[1]
    assert len(answers[2]) == len(answers[0])  # fed again after each rollback, in other blocks


@pytest.mark.model
def test_a_recurrent_model_is_refused_by_ik(pin_of: PinOf, tmp_path: Path) -> None:
    pin = pin_of(write_mamba(tmp_path / "mamba.gguf"))
    with pytest.raises(EngineError, match="recurrent"):
        VERIFIERS["ik"]().load(pin, None, EngineOptions(n_ctx=256, batch_size=16))


@pytest.mark.model
def test_sessions_leave_no_memory_behind(engine: CellEngine) -> None:
    def resident() -> int:
        gc.collect()
        return psutil.Process().memory_info().rss

    def use() -> None:
        sampling = replace(SEEDED, grammar='root ::= ("a" | "b" | [c-z])+', n_probs=3)
        with ready(engine, [5, 6, 7], sampling) as session:
            rows = session.verify([8])
            rows.logprobs(0, rows.pick(0), 3)

    for _ in range(10):
        use()
    before = resident()
    for _ in range(60):
        use()
    assert resident() - before < 8 << 20  # one leaked row of candidates or a grammar each would be 35 MB


def test_a_lane_of_another_engine_is_refused_before_anything_is_loaded(smollm2_path: Path, pin_of: PinOf) -> None:
    for verifier, other in (("llama", "ik"), ("ik", "llama")):
        lane = Lane("given", (1, 2), EngineSetting(engine=other))
        with pytest.raises(EngineError, match=f"{other}'s, not {verifier}'s"):
            VERIFIERS[verifier]().load(pin_of(smollm2_path), lane, EngineOptions(n_ctx=256))


@pytest.mark.model
def test_engines_leave_no_memory_behind(load_engine: LoadEngine, smollm2_path: Path, lane: Lane, verifier: str) -> None:
    lane = replace(lane, widths=(1,))

    def load_and_close() -> int:
        loaded = load_engine(smollm2_path, lane, n_ctx=1024, verifier=verifier)
        with ready(loaded, [5, 6]) as session:
            session.verify([])
        loaded.close()
        loaded.close()
        gc.collect()
        return psutil.Process().memory_info().rss

    first = max(load_and_close() for _ in range(3))
    last = [load_and_close() for _ in range(5)][-1]
    assert last - first < 40 << 20  # the allocator keeps some; five leaked vocabularies alone would be 100 MB


@pytest.mark.model
def test_the_engines_log_goes_where_it_is_sent(
    smollm2_path: Path,
    pin_of: PinOf,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    lane: Lane,
    verifier: str,
) -> None:
    pin, options = pin_of(smollm2_path), EngineOptions(n_ctx=256)
    VERIFIERS[verifier]({"log": "stderr"}).load(pin, lane, options).close()
    assert " buffer size = " in capfd.readouterr().err
    with caplog.at_level(logging.DEBUG, f"pilotfish.{verifier}"):
        VERIFIERS[verifier]({"log": "logger"}).load(pin, lane, options).close()
    assert " buffer size = " in caplog.text
    assert capfd.readouterr().err == ""


@pytest.mark.model
def test_closing_an_engine_closes_its_session(
    load_engine: LoadEngine, smollm2_path: Path, lane: Lane, verifier: str
) -> None:
    engine = load_engine(smollm2_path, lane, n_ctx=256, verifier=verifier)
    session = engine.open([5, 6], GREEDY)
    engine.close()
    with pytest.raises(ProtocolViolation, match="closed"):
        session.verify([])
    with pytest.raises(EngineError, match="closed"):
        engine.tokenizer.encode("hello")


@pytest.mark.model
def test_a_context_that_is_no_multiple_of_256_takes_prompts_up_to_the_cells_it_gets(
    load_engine: LoadEngine, smollm2_path: Path, lane: Lane, verifier: str
) -> None:
    """libllama rounds the cells up, but not the longest block it takes without aborting the process."""
    engine = load_engine(smollm2_path, lane, n_ctx=100, verifier=verifier)
    try:
        assert engine.n_ctx == 256
        with ready(engine, [5] * 255) as session:
            assert session.verify([]).pick(0) in range(engine.n_vocab)
    finally:
        engine.close()


@pytest.mark.model
def test_the_check_at_load_keeps_to_the_launchs_short_prompt_blocks(
    smollm2_path: Path, pin_of: PinOf, tmp_path: Path, verifier: str
) -> None:
    pin = pin_of(write_tiny_llama(tmp_path / "tiny.gguf", smollm2_path))
    engine = VERIFIERS[verifier]().load(pin, None, EngineOptions(n_ctx=512, batch_size=48, threads=1))
    try:
        assert engine.lane.max_width > 1, engine.lane.reason
        assert engine.lane.prefill_block == 48
    finally:
        engine.close()


@pytest.mark.model
def test_ik_reads_prompts_in_short_blocks_so_that_a_next_turn_keeps_more(pin_of: PinOf, tmp_path: Path) -> None:
    path = write_llama(tmp_path / "m.gguf")
    for asked, block in ((2048, PROMPT_BLOCK), (512, PROMPT_BLOCK), (48, 48)):
        options = EngineOptions(n_ctx=512, batch_size=asked, threads=1)
        engine = VERIFIERS["ik"]().load(pin_of(path), None, options)
        assert engine.lane.prefill_block == block
        engine.close()
