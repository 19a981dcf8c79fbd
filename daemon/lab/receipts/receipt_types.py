"""What a receipt holds: where and with what a run was made, how it was asked, and every trial, id by id.

A receipt is a folder (see `receipt_folder`). Times are seconds of the client's monotonic clock; counts are tokens, the
end token included. What nothing measured is None, never 0. In a redacted receipt every list of ids and every text is
None; counts and times stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pilotfish.daemon.config.types import Promotion, Speculation
from pilotfish.hooks.types import EnginePin, Lane, SamplingParams, TokenizerPin

SCHEMA = "pilotfish-receipt/1"

Ids = tuple[int, ...]


class TrialKind(StrEnum):
    """What a trial is for."""

    COLD = "cold"  # the first answer after loading: in no figure
    PLAIN = "plain"  # no drafts; the first one of a prompt is what the others are compared with
    DRAFT = "draft"  # a drafter as people use it
    ORACLE = "oracle"  # a drafter that replays the plain answer and is wrong where its case says
    CONTROL = "control"  # an Ollama: bytes and counts, no ids


class TrialVerdict(StrEnum):
    """What the comparison of a trial said."""

    REFERENCE = "reference"  # others are compared with it
    EQUAL = "equal"  # every id; of a control every byte and the count
    DIFFERENT = "different"  # from index `differs_at` on; its rates are diagnostic and enter no ratio
    NOT_REACHED = "not reached"  # the case could not be brought about; `about` says why
    FAILED = "failed"  # it ended with an error, which `about` has


class RunVerdict(StrEnum):
    """What a whole run, or one drafter in it, comes to."""

    PASSED = "passed"
    NOT_PROMOTED = "not promoted"  # exact, but a threshold was missed
    FAILED = "failed"  # a comparison of ids failed


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """The machine and the programs, without names of users, hosts or folders."""

    created: str  # ISO 8601, UTC
    pilotfish: str
    python: str
    system: str
    device: str  # processor, usable cores and accelerators; see `certify.device`
    memory: int  # bytes
    variables: Mapping[str, str] = field(default_factory=dict)  # those that the engine reads (GGML_*)


@dataclass(frozen=True, slots=True)
class PinnedWeights:
    """One weight file: `sha256:<hex>` and bytes."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class RunPins:
    """What the run holds for. `model` is what the command was asked for: a name of the store, or a file."""

    model: str
    weights: tuple[PinnedWeights, ...]
    tokenizer: TokenizerPin
    engine: EnginePin
    manifest_digest: str | None = None
    architecture: str = ""
    quantization: str = ""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How the run was asked and what the model was loaded with. `control` has the URLs of Ollamas, with commas."""

    lane: Lane
    n_ctx: int
    threads: int | None
    batch_size: int
    prompts: str  # how prompts are read: `[engine] prompts`
    tokens: int  # the budget of an answer
    sampling: SamplingParams
    lengths: tuple[str, ...]  # as asked: numbers, or `auto`, where the controller chooses
    repeats: int
    drafters: Mapping[str, Mapping[str, Any]]  # by name, with the config's tables
    oracle_cases: bool
    order: str
    control: str = ""
    unsafe_lane: bool = False
    redacted: bool = False
    thresholds: Promotion = field(default_factory=Promotion)
    gpu_layers: int | None = None  # None: the engine's own choice
    speculation: Speculation = field(default_factory=Speculation)  # in force where the controller chooses


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """Where a round's time went; `total` is their sum, within the clock's resolution.

    `transport` is what waiting for a drafter on a thread, in a process or on another machine took beyond its own work;
    None where the drafter is called directly. `device` is what the engine says its device computed for; None where it
    says nothing.
    """

    drafting: float
    bridging: float
    verification: float
    transport: float | None
    overhead: float
    total: float
    device: float | None = None


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One round. `proposed` is what was verified; a round that proposed nothing was a plain step.

    `accepted` counts proposed ids that were committed; the correction or bonus id behind them is no accepted one.
    """

    position: int  # committed ids before it, the prompt's included
    width: int  # of the forward, padding included
    drafter: str  # "" for a plain step
    n_proposed: int
    accepted: int
    n_committed: int
    times: RoundTimes
    proposed: Ids | None = None
    committed: Ids | None = None

    @property
    def fallback(self) -> bool:
        """Whether nothing was proposed, so that the round was a plain step."""
        return self.n_proposed == 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One delivery: so many ids (of a control: so many pieces of text) at once, `at` seconds after the request."""

    at: float
    tokens: int


@dataclass(frozen=True, slots=True)
class TrialTimes:
    """A trial as its client saw it, the reading of its prompt included: the first arrival, the end, every arrival."""

    first_token: float
    total: float
    arrivals: tuple[Arrival, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One answer. `name` is unique in its receipt: `RECEIPT#NAME` is how commands are told of it.

    `compared_with` names the trial whose ids this one's were compared with; "" for a reference. `prompt` is the
    prompt's name; ids and text are None where the receipt is redacted, and of a control there are no ids: its
    `differs_at` counts bytes of text.
    """

    name: str
    kind: TrialKind
    prompt: str
    n_prompt: int
    drafter: str  # "" without one; an oracle's is `oracle`
    length: str  # of a proposal, as asked; "" without a drafter
    case: str  # of an oracle
    repeat: int
    tokens: int
    stop: str  # what ended it, in llama-server's words: eos, limit, word, none
    times: TrialTimes
    rounds: tuple[RoundRecord, ...]
    verdict: TrialVerdict
    compared_with: str = ""
    differs_at: int | None = None
    about: str = ""
    table: Mapping[str, Any] = field(default_factory=dict)  # of the drafter, without the answer that an oracle replays
    sampling: SamplingParams | None = None  # where it differs from the run's
    prompt_ids: Ids | None = None
    output_ids: Ids | None = None
    text: str | None = None  # of a control, and of what it is compared with
    control: int | None = None  # which of the receipt's controls answered, the first one being 0

    @property
    def proposed(self) -> int:
        """Draft ids that were verified."""
        return sum(round.n_proposed for round in self.rounds)

    @property
    def accepted(self) -> int:
        """Draft ids that were committed; corrections and bonus ids are not counted."""
        return sum(round.accepted for round in self.rounds)

    @property
    def terminated(self) -> bool:
        """Whether the last id is an end token."""
        return self.stop == "eos"

    @property
    def failing_prefix(self) -> Ids | None:
        """The prompt and all ids before the first one that differs; None where nothing does, or ids were left out."""
        if self.differs_at is None or self.prompt_ids is None or self.output_ids is None:
            return None
        return self.prompt_ids + self.output_ids[: self.differs_at]


@dataclass(frozen=True, slots=True)
class DrafterJudgement:
    """What a drafter at one length came to. Answers that diverged enter no rate; None where none is left."""

    drafter: str
    length: str
    verdict: RunVerdict
    reasons: tuple[str, ...]
    answers: int
    different: int
    rate: float | None  # median of committed ids per second from the request to the end
    plain_rate: float | None
    ratio: float | None
    first_token_p95: float | None
    plain_first_token_p95: float | None


class ServedBy(StrEnum):
    """What serves a model behind an Ollama's API."""

    PILOTFISH = "pilotfish"  # an overlaid Ollama's runner
    STOCK = "stock"  # its own llama-server
    UNKNOWN = ""  # it cannot be seen from here


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """An Ollama that was asked, too, and what the process that serves its model says of itself; `about` is the rest.

    `drafted` and `accepted` count its drafts while its warm answers were made; None where it tells none.
    """

    url: str
    version: str  # Ollama's own; "" where it tells none
    served_by: ServedBy = ServedBy.UNKNOWN
    lane: str = ""
    parity: str = ""
    widths: Ids = ()
    drafted: int | None = None
    accepted: int | None = None
    about: str = ""


@dataclass(frozen=True, slots=True)
class Receipt:
    """A run. `load_seconds` is what loading the model took before any trial: cold, and in no rate."""

    environment: RunEnvironment
    pins: RunPins
    settings: RunSettings
    trials: tuple[TrialRecord, ...]
    verdict: RunVerdict
    load_seconds: float | None = None
    judgements: tuple[DrafterJudgement, ...] = ()
    notes: tuple[str, ...] = ()
    controls: tuple[ControlRecord, ...] = ()
    schema: str = SCHEMA

    def trial(self, name: str) -> TrialRecord | None:
        """The trial of that name; None where there is none."""
        return next((trial for trial in self.trials if trial.name == name), None)
