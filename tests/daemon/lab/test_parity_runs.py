"""The proof on the real model: ids with drafters of every kind equal the plain ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from pilotfish.daemon.config.types import Config, Drafters
from pilotfish.daemon.lab.parity_runs import first_difference, run_parity
from pilotfish.daemon.lab.parity_subject import Subject, contenders_for, contenders_of
from pilotfish.daemon.lab.subjects import stock_lane
from pilotfish.daemon.lab.workloads import MODES, load_workloads
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.types import EngineOptions
from tests.engines import GEMMA, VERIFIERS
from tests.fakes.state import SHARED

OPTIONS = EngineOptions(n_ctx=1024, threads=1)  # two workers fill two cores; long contexts are tried on two, too


@pytest.mark.parametrize(
    ("a", "b", "index"), [((), (), None), ((1, 2), (1, 2), None), ((1, 2), (1, 3), 1), ((1, 2), (1, 2, 3), 2)]
)
def test_the_first_difference_of_two_id_lists(a, b, index):
    assert first_difference(a, b) == index


@pytest.fixture(scope="module")
def state_dir():
    return SHARED


@pytest.mark.model
@pytest.mark.parametrize(
    ("quantization", "every"),
    [("Q4_1", 4), ("Q4_K_M", 4), *(pytest.param(kind, 1, marks=pytest.mark.long) for kind in ("Q4_1", "Q4_K_M"))],
)  # all widths, and few
def test_every_drafter_leaves_every_answer_as_it_is(quantized, state_dir, quantization, every):
    """Of some workloads; `pilotfish parity` compares all of them, and `--full` at length."""
    workloads = load_workloads()[::every]
    subject = Subject.load(quantized(quantization), state_dir, options=OPTIONS)
    contenders = contenders_for(subject.engine.lane)
    try:
        trials = list(run_parity(subject, workloads, MODES, n_predict=10, contenders=contenders))
    finally:
        subject.close()
    assert len(trials) == len(workloads) * len(MODES) * len(contenders)
    assert [trial for trial in trials if not trial.equal] == []
    accepted, drafted = Counter[str](), Counter[str]()
    for trial in trials:
        accepted[trial.contender] += trial.accepted
        drafted[trial.contender] += trial.drafted
    assert accepted["oracle"] == drafted["oracle"] > 0
    partly = contenders[2].title
    assert 0 < accepted[partly] < drafted[partly]
    assert accepted["junk"] == 0 < drafted["junk"]
    assert drafted["suffix"] > 0


@pytest.mark.model
def test_a_long_context_is_no_exception_with_more_than_one_thread(quantized, state_dir):
    workloads = load_workloads()
    long = replace(workloads[0], name="long", prompt="\n\n".join(workload.prompt for workload in workloads))
    subject = Subject.load(quantized("Q4_1"), state_dir, options=replace(OPTIONS, threads=2))
    try:
        assert len(subject.request(long, MODES[0], 8).prompt) > 600
        trials = list(run_parity(subject, [long], MODES[1:], n_predict=8))
    finally:
        subject.close()
    assert [trial for trial in trials if not trial.equal] == []
    assert sum(trial.accepted for trial in trials) > 0


@pytest.mark.model
@pytest.mark.parametrize("verifier", VERIFIERS)
def test_the_control_outside_a_lane_finds_differences(quantized, state_dir, verifier):
    """Stock settings and every width: the same comparison fails, so passing it says something."""
    options = replace(OPTIONS, threads=1 if verifier == "ik" else 2)
    subject = Subject.load(
        quantized("Q4_K_M"), state_dir, verifier=verifier, lane=stock_lane(verifier), options=options
    )
    oracle = [contender for contender in contenders_for(subject.engine.lane) if contender.title == "oracle"]
    try:
        trials = run_parity(subject, load_workloads()[::-1], MODES, n_predict=256, contenders=oracle)
        assert any(not trial.equal for trial in trials)
    finally:
        subject.close()


@pytest.mark.model
@pytest.mark.parametrize(("some", "n_predict"), [(1, 10), pytest.param(2, 16, marks=pytest.mark.long)])
def test_another_engine_answers_alike_with_every_drafter(smollm2_path, state_dir, some, n_predict):
    subject = Subject.load(smollm2_path, state_dir, verifier="ik", options=replace(OPTIONS, threads=1))
    try:
        trials = list(run_parity(subject, load_workloads()[:some], MODES, n_predict=n_predict))
    finally:
        subject.close()
    assert [trial for trial in trials if not trial.equal] == []
    assert sum(trial.accepted for trial in trials) > 0
    assert {trial.lane for trial in trials} == {"ik: no flash, K f16, V f16"}


@pytest.mark.model
@pytest.mark.parametrize(
    ("verifier", "kind", "where"), [("llama", "Q4_1", "with stock's cache types"), ("ik", GEMMA, "in the lane")]
)
def test_prompts_that_are_read_fast_change_no_answer_either(quantized, state_dir, verifier, kind, where):
    """Long enough for a second context, and for more than a sliding window sees."""
    workloads = load_workloads()
    options = replace(OPTIONS, threads=1 if verifier == "ik" else None)
    subject = Subject.load(quantized(kind), state_dir, verifier=verifier, options=options)
    try:
        assert subject.read_prompts("fast") == where
        asked = {"n_predict": 8, "depth": 600, "texts": workloads, "prompts": "fast"}
        trials = list(run_parity(subject, workloads[-1:], MODES[1:], **asked))
        assert subject.read_prompts("fast") == where
    finally:
        subject.close()
    assert [trial for trial in trials if not trial.equal] == []
    assert sum(trial.accepted for trial in trials) > 0
    assert {trial.prompts for trial in trials} == {"fast"}


@pytest.mark.model
def test_a_model_that_drafts_for_itself_is_right_and_alone_or_with_others_changes_nothing(
    smollm2_path, quantized, state_dir
):
    tables = {"llama": {"model": str(smollm2_path), "min_confidence": 0.0}, "suffix": {}}
    contenders = contenders_of(Config(drafters=Drafters(tables=tables)), ["llama", "suffix"])
    assert [contender.title for contender in contenders] == ["llama", "suffix", "all together"]
    subject = Subject.load(quantized("Q4_1"), state_dir, options=OPTIONS)
    asked = [contender for contender in contenders if "llama" in contender.tables]
    try:
        trials = list(run_parity(subject, load_workloads()[::4], MODES[:1], n_predict=10, contenders=asked))
    finally:
        subject.close()
    assert [trial for trial in trials if not trial.equal] == []
    alone = [trial for trial in trials if trial.contender == "llama"]
    assert sum(trial.accepted for trial in alone) == sum(trial.drafted for trial in alone) > 0


@pytest.mark.model
def test_a_drafter_that_cannot_be_had_ends_the_run_with_its_reason(quantized, state_dir):
    contenders = contenders_of(Config(drafters=Drafters(tables={"llama": {"model": "no/such.gguf"}})), ["llama"])
    subject = Subject.load(quantized("Q4_1"), state_dir, options=OPTIONS)
    try:
        with pytest.raises(EngineError, match=r"drafter llama is .*no/such\.gguf"):
            list(run_parity(subject, load_workloads()[:1], MODES[:1], n_predict=2, contenders=contenders))
    finally:
        subject.close()
