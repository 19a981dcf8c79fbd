"""Finding out what the product does with one model, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.core.generation import GenerationRequest
from pilotfish.daemon.core.target_session import going_back_of
from pilotfish.daemon.lab.depths import natural_text
from pilotfish.daemon.lab.matrix.matrix_case import KeptPrefix, MatrixAnswer, MatrixCase, MatrixRow, MatrixSize
from pilotfish.daemon.lab.parity_runs import first_difference
from pilotfish.daemon.lab.parity_subject import Subject, contenders_for
from pilotfish.daemon.lab.workloads import MODES, Mode, load_workloads
from pilotfish.hooks.protocols import TargetEngine
from pilotfish.hooks.types import EngineOptions
from pilotfish.manifests.gguf import GGUFMetadata, read_metadata

CUT, SNAPSHOT, RESTORE, NOTHING = "cuts the tail", "back to a snapshot", "writes a state back", "none: decodes plainly"
SHARED = (48, 600)  # ids that a second prompt begins with as the first: less than a window and a prompt block, and more
_OWN = 24  # ids that each of the two has besides
_AFTER = 8  # ids of the answers to them
_ROOM = 64  # cells for what a lane pads
_ALONE = 24  # ids of an answer that is compared with nothing

Stage = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Bench:
    """A loaded model, and text as ids that prompts are cut from."""

    subject: Subject
    ids: tuple[int, ...]

    def request(self, start: int, length: int, mode: Mode, n: int, *, cached: bool = True) -> GenerationRequest:
        sampling = replace(mode.sampling, ignore_eos=True)
        return GenerationRequest(self.ids[start : start + length], sampling, n, cache_prompt=cached)


def measured_row(case: MatrixCase, size: MatrixSize, path: Path, stage: Stage = lambda what: None) -> MatrixRow:
    """The row of the model at `path`; `stage` hears what comes next. Raises what loading or an engine raises."""
    stage("loading")
    longest = max(*size.contexts, max(SHARED) + _OWN)
    options = EngineOptions(n_ctx=longest + size.tokens + _ROOM)
    subject = Subject.load(path, state_dir(), verifier=case.engine, options=options)
    try:
        engine = subject.engine
        row = MatrixRow(
            case,
            size,
            weights=path.stat().st_size,
            lane=engine.lane.name,
            widths=engine.lane.widths,
            reason=engine.lane.reason,
            rollback=rollback_of(engine, read_metadata(path)),
        )
        bench = _Bench(subject, _text(subject, longest + _OWN))
        stage("a second prompt that begins as the first")
        kept = tuple(_second_prompt(bench, shared) for shared in SHARED)
        compared, distinct = _all_compared(bench, size, stage)
        return replace(row, kept=kept, compared=compared, distinct=distinct)
    finally:
        subject.close()


def rollback_of(engine: TargetEngine, metadata: GGUFMetadata) -> str:
    """What becomes of rejected tokens' memory."""
    if engine.lane.max_width == 1:
        return NOTHING
    if going_back_of(engine) is not None:
        return RESTORE
    keeps_a_state = metadata.is_recurrent or metadata.number(f"{metadata.architecture}.shortconv.l_cache") > 0
    return SNAPSHOT if keeps_a_state else CUT


def _text(subject: Subject, length: int) -> tuple[int, ...]:
    encode = subject.engine.tokenizer.encode
    text = natural_text(load_workloads(), length, lambda text: len(encode(text)))
    return tuple(encode(text)[:length])


def _second_prompt(bench: _Bench, shared: int) -> KeptPrefix:
    """Two prompts with the same beginning, the second with and without what the first left behind."""
    greedy = MODES[0]
    bench.subject.answer(bench.request(0, shared + _OWN, greedy, _AFTER, cached=False), None)
    own = reversed(bench.ids[shared : shared + _OWN])
    second = replace(
        bench.request(0, shared, greedy, _AFTER),
        prompt=(*bench.ids[:shared], *own),
    )
    again = bench.subject.answer(second, None)
    fresh = bench.subject.answer(replace(second, cache_prompt=False), None)
    kept = again.outcome.timings.cache_n
    return KeptPrefix(shared, kept, again.tokens == fresh.tokens if kept else None)


def _all_compared(bench: _Bench, size: MatrixSize, stage: Stage) -> tuple[tuple[MatrixAnswer, ...], int]:
    """Every answer beside the plain one, and how varied the least varied one was.

    Nothing is drafted in a lane of one width: one answer then shows that the model computes at all.
    """
    if bench.subject.engine.lane.max_width == 1:
        stage("decoding plainly")
        alone = bench.subject.answer(bench.request(0, max(size.contexts), MODES[0], _ALONE), None)
        return (), len(set(alone.tokens))
    compared: list[MatrixAnswer] = []
    distinct = size.tokens
    for context in size.contexts:
        for mode in MODES:
            stage(f"{mode.name} after {context} tokens")
            request = bench.request(0, context, mode, size.tokens)
            plain = bench.subject.answer(request, None).tokens
            distinct = min(distinct, len(set(plain)))
            compared += _compared(bench, request, mode, plain, stage)
    return tuple(compared), distinct


def _compared(
    bench: _Bench, request: GenerationRequest, mode: Mode, plain: tuple[int, ...], stage: Stage
) -> Iterator[MatrixAnswer]:
    """With the product's own drafter, and one that is partly right."""
    suffix, _, partly_right, _ = contenders_for(bench.subject.engine.lane)
    for contender in (suffix, partly_right):
        stage(f"{mode.name} after {len(request.prompt)} tokens with {contender.title}")
        got = bench.subject.answer(request, contender, plain)
        timings = got.outcome.timings
        yield MatrixAnswer(
            context=len(request.prompt),
            mode=mode.name,
            drafter=contender.title,
            tokens=len(got.tokens),
            drafted=timings.draft_n,
            accepted=timings.draft_n_accepted,
            differs_at=first_difference(plain, got.tokens),
        )
