"""One request from token ids to emitted tokens: the types that the runner and the coordinator share."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from pilotfish.daemon.core.context_window import ContextShift
from pilotfish.hooks.types import Parity, SamplingParams, SessionReport, TokenLogprob


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What to generate. `prompt` is not empty; `n_predict` is -1 for "until the end", else a budget in tokens.

    `preserved` are control tokens whose text belongs to the answer. Without a `shift` an answer ends with the context.
    `slot` is the one it wants; None: any.
    """

    prompt: tuple[int, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    n_predict: int = -1
    stop: tuple[str, ...] = ()
    cache_prompt: bool = True
    speculate: bool = True
    preserved: frozenset[int] = frozenset()
    shift: ContextShift | None = None
    line_ms: int = 0  # milliseconds after the first token from which on a line break ends the answer; 0: none does
    slot: int | None = None
    client: str = ""  # the program that asks, for the account


@dataclass(frozen=True, slots=True)
class OutputToken:
    """One committed token. `text` is what may be sent now: empty while a character or a stop string is undecided."""

    token: int
    text: str = ""
    drafted: bool = False  # proposed by a drafter and accepted
    logprob: TokenLogprob | None = None  # set when the request asked for n_probs


@dataclass(frozen=True, slots=True)
class Timings:
    """Counts are tokens, times are milliseconds, as llama-server reports them."""

    cache_n: int = 0
    prompt_n: int = 0
    prompt_ms: float = 0.0
    predicted_n: int = 0
    predicted_ms: float = 0.0
    draft_n: int = 0
    draft_n_accepted: int = 0


class StopType(StrEnum):
    """What ended a generation, in llama-server's words."""

    NONE = "none"  # nothing did: it goes on, or was cancelled
    EOS = "eos"  # the model
    LIMIT = "limit"  # the budget, or the end of the context
    WORD = "word"  # a stop string


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a generation ended."""

    stop_type: StopType
    timings: Timings
    stopping_word: str = ""
    truncated: bool = False  # the context was full
    discarded: int = 0  # tokens that the context forgot, so that the answer could go on
    slot: int = 0  # in which it was answered
    parity: Parity = Parity.LANE
    lane: str = ""
    speculated: bool = False  # at least one round verified a proposal
    report: SessionReport = field(default_factory=SessionReport)
