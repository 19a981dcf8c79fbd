"""What a drafter, a bridge and a verifier are. Plain protocols: hooks hand objects over, these do the work.

A session's life, as the coordinator drives it::

    engine  = verifier.load(pin, lane, options)          once per model
    target  = engine.open(prompt, sampling)              once per request
    while target.prefill(): ...                          prompt blocks; the caller may stop between two
    draft   = drafter.open(pin, prompt)

    round:    proposal = draft.propose(k)
              rows     = target.verify(ids)              one forward: [pending] + ids
              accepted = rows.pick(0), rows.pick(1), ... up to the first pick that differs
              target.commit(accepted); draft.commit(accepted)     or target.rollback(); draft.rollback()

    target.close(); draft.close()

All calls of one session come from one thread at a time. No call may touch an event loop. A call out of turn (verify
before the prompt is fed, commit without verify, anything after close) raises PilotfishError. The sessions of an engine
with slots take turns: between one's verify and its commit or rollback no other one forwards, but for those that were
verified together.

A drafter must be a `Drafter`, a bridge a `Bridge`, a verifier a `Verifier`. Whatever else one can do, it says by what
it has: `LoadableDrafter`, `SpeaksVocabulary`, `ServesSessions`, `TellsStatus`, `MayEnd`; `CountsDrafterIds`;
`CertifiableVerifier`, `RefusesModels`, `ReadsVocabularies`, `TellsDevices`, `TellsFootprint`, `TellsMemory`,
`Requantizes`; of its engines, `HasSlots`, `VerifiesTogether`, `RemembersConversations` and `ReadsPromptsFast`; of its
sessions, `ShiftsContext`; of its probes, `ReadsLogits`, `StepsTogether` and `ReadsPromptsApart`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pilotfish.hooks.types import (
    Ack,
    ConversationTotals,
    DeviceMemory,
    EngineOptions,
    EnginePin,
    EngineSetting,
    Footprint,
    JointStep,
    Lane,
    Placement,
    Proposal,
    SamplingParams,
    TargetPin,
    TokenizerPin,
    TokenLogprob,
)


@runtime_checkable
class DraftSession(Protocol):
    """One drafter's view of one request."""

    def propose(self, k: int) -> Proposal:
        """At most `k` token ids that may come next. Empty means "not now". Must not change the history.

        What `pilotfish.hooks.proposals.checked` refuses is not used, and counted in `pilotfish status`.
        """
        ...

    def commit(self, tokens: Sequence[int]) -> Ack:
        """Take `tokens` into the history (they may differ from what was proposed) and acknowledge it."""
        ...

    def rollback(self) -> Ack:
        """Forget the last proposal, if any, and acknowledge the unchanged history."""
        ...

    def close(self) -> None:
        """Release what the session holds. Called once, also after an error."""
        ...


@runtime_checkable
class Drafter(Protocol):
    """Guesses tokens ahead of the target.

    `name` is the registry name. `placement` says where it computes, and must be a `Placement`:

    - INLINE promises that `propose` and `commit` return within a millisecond whatever the history's length; it is
      called on the engine's thread.
    - ENGINE_THREAD is for one that computes with the target's own engine library, which two threads of a process
      would slow down: its calls run on the engine's thread, and are waited for.
    - THREAD gives it a thread of its own, and it is waited for only as long as the account can pay.
    - PROCESS is THREAD in a process that pilotfish starts for it. Only of use for a `LoadableDrafter`; any other is
      used as with THREAD.
    - REMOTE computes on another machine, and is asked ahead while the target computes.

    One without a placement is not used, and the log says why. Neither is one whose `inline`, `hosted`, `elsewhere` or
    `engine_thread`, which pilotfish 0.1 read, say something else than its placement.
    """

    name: str
    placement: Placement

    def open(self, target: TargetPin, prompt: Sequence[int]) -> DraftSession:
        """Start a session whose history is `prompt` (ids in this drafter's vocabulary, round 0)."""
        ...


@runtime_checkable
class Vocabulary(Protocol):
    """A tokenizer as bridges see it: pinned, and known id by id."""

    pin: TokenizerPin

    def encode(self, text: str) -> list[int]:
        """Ids of ordinary text: nothing is added, and what looks like a special token is text like any other."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes an id stands for; of a special one its text. Raises RequestError outside the vocabulary."""
        ...

    def special(self, token: int) -> bool:
        """Whether an id is a control token, which text can never give."""
        ...


@runtime_checkable
class SpeaksVocabulary(Protocol):
    """A drafter that may have another vocabulary than the target. One that is none speaks the target's own ids."""

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Its own, known once it is loaded; None means the target's ids."""
        ...


@runtime_checkable
class ServesSessions(Protocol):
    """A drafter that can be used by several sessions at a time. Others serve one: a request that is answered beside
    that one's goes without.
    """

    @property
    def sessions(self) -> int:
        """How many sessions may be open at once; at least one."""
        ...


@runtime_checkable
class TellsStatus(Protocol):
    """A drafter with something to say of itself in `pilotfish status`."""

    def status(self) -> str:
        """One line for a person; empty for nothing. Asked by any thread."""
        ...


@runtime_checkable
class MayEnd(Protocol):
    """A drafter whose loaded state may be gone without `unload`, as a process may be. It is loaded again later."""

    @property
    def alive(self) -> bool:
        """Whether what `load` got is still there."""
        ...


class Host(Protocol):
    """What pilotfish does for a drafter that has something to load."""

    state_dir: Path  # where a drafter may keep files, in a folder of its own name

    def pin(self, model: str) -> TargetPin:
        """A model of the store by its name, or a .gguf file by its path. Raises ModelNotFound or BrokenModel."""
        ...

    def lease(self, device: str) -> AbstractContextManager[object]:
        """Hold a device that only one process may use, until the context ends. Raises DeviceBusy, naming the holder."""
        ...


@runtime_checkable
class LoadableDrafter(Drafter, SpeaksVocabulary, Protocol):
    """A drafter with weights or a connection, which it gets before the first session and gives back at the end.

    pilotfish asks for `footprint`, admits it or refuses it, and calls `load` on a thread of its own, so that no
    request waits for it; a load that raised is tried again later, at growing distances. `load` and `unload` may
    follow each other any number of times; sessions are only open in between.
    """

    def footprint(self, host: Host, target: TargetPin, options: EngineOptions) -> Footprint | None:
        """What `load` and one session will need on this machine, from metadata alone; None when that is nothing.

        `options` are the target's. Raises ModelNotFound, BrokenModel or ConfigError.
        """
        ...

    def load(self, host: Host, target: TargetPin, options: EngineOptions) -> None:
        """Get ready for sessions on `target`, warm-up included. Raises any PilotfishError, saying what to do."""
        ...

    def unload(self) -> None:
        """Free everything. Never raises; does nothing when nothing is loaded."""
        ...


class DrafterFactory(Protocol):
    """Builds a drafter from its own config table, e.g. `[drafters.suffix]`. Loads nothing yet."""

    def __call__(self, config: Mapping[str, Any], /) -> Drafter: ...


@runtime_checkable
class Bridge(Protocol):
    """Translates between a drafter's vocabulary and the target's, for one session.

    `to_drafter` is called with the prompt first, then with each commit in order; `to_target` in between, any number
    of times, for a proposal that continues everything `to_drafter` gave so far.
    """

    def to_drafter(self, target_ids: Sequence[int]) -> Sequence[int]:
        """The drafter ids that these target ids add. May hold some back until more text decides what they are; what
        was given is never taken back.
        """
        ...

    def to_target(self, proposal: Proposal) -> Proposal:
        """A proposal in target ids that continues the committed target ids, cut where it cannot be expressed."""
        ...


@runtime_checkable
class CountsDrafterIds(Protocol):
    """A bridge between vocabularies that cut text into pieces of different lengths."""

    def drafter_ids(self, k: int) -> int:
        """How many ids to ask the drafter for to get `k` target ids; without this it is asked for `k`."""
        ...


class BridgeFactory(Protocol):
    """Opens a bridge between two vocabularies, or answers None: "not mine, ask the next"."""

    def __call__(self, drafter: Vocabulary, target: Vocabulary, /) -> Bridge | None: ...


@runtime_checkable
class Rows(Protocol):
    """The target's decisions after one forward: row i follows the pending token and the first i proposals."""

    def __len__(self) -> int:
        """Rows that may be picked: 1 + the number of proposals verified."""
        ...

    def pick(self, i: int) -> int:
        """Draw row i's token with the request's own sampler and advance the sampler by it.

        Rows are picked in order, each at most once, and never past the first pick that differs from the
        proposal: one random draw per emitted token, none for a rejected one.
        """
        ...

    def logprobs(self, i: int, token: int, n: int) -> TokenLogprob:
        """Log-probability of `token` in row i before sampling, with the `n` most probable tokens."""
        ...


@runtime_checkable
class TargetSession(Protocol):
    """The target's side of one request.

    The cache holds the history minus its last token; that token is pending and leads the next forward.
    """

    @property
    def cached(self) -> int:
        """Prompt tokens taken from an earlier request's cache."""
        ...

    def prefill(self) -> int:
        """Feed the next prompt block; returns how many prompt tokens are still to be fed before the pending one."""
        ...

    def verify(self, proposals: Sequence[int]) -> Rows:
        """Forward `[pending] + proposals`, padded if the lane says so. Must be followed by commit or rollback."""
        ...

    def commit(self, tokens: Sequence[int]) -> Ack:
        """Make `tokens` (the picks, in order, at least one) history; cuts what was rejected from the cache."""
        ...

    def rollback(self) -> Ack:
        """Forget the last forward. Acknowledges the unchanged history."""
        ...

    def close(self) -> None:
        """Free the slot. The cache may be kept for a later request with the same prefix."""
        ...


@runtime_checkable
class ShiftsContext(Protocol):
    """A target session whose cache can forget tokens in its middle, so that an answer goes on past its context's end.

    The history stays whole, and so do its acknowledgements: only the cache forgets. One that is a plain `TargetSession`
    ends with its context.
    """

    @property
    def can_shift(self) -> bool:
        """Whether this model's cache can."""
        ...

    def shift(self, keep: int, discard: int) -> None:
        """Forget `discard` of the tokens that the cache holds behind the first `keep`; those that follow move down.

        Between a commit and a verify. What has to be fed again is fed by `prefill`, as a prompt is. What the cache
        holds afterwards must not depend on the rounds that committed its tokens. Raises EngineError.
        """
        ...


@runtime_checkable
class Tokenizer(Protocol):
    """The target's own tokenizer, exactly as its engine does it."""

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of `text`; `add_special` adds BOS/EOS as the model's metadata asks."""
        ...

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes a token stands for in output; control tokens are empty unless `special`."""
        ...

    def decode(self, tokens: Sequence[int], *, special: bool = True) -> bytes:
        """The bytes of a token sequence."""
        ...


@runtime_checkable
class TargetEngine(Protocol):
    """A loaded target model. One that is not `HasSlots` has one slot: a session is closed before the next is opened."""

    lane: Lane
    engine: EnginePin
    tokenizer: Tokenizer
    n_ctx: int  # tokens
    n_vocab: int
    eog: frozenset[int]  # every end-of-generation id

    def open(self, prompt: Sequence[int], sampling: SamplingParams, *, cache_prompt: bool = True) -> TargetSession:
        """Start a session. Raises ContextOverflow, RequestError (grammar, ids out of range) or EngineError."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...


@runtime_checkable
class SlotSession(TargetSession, Protocol):
    """A session of an engine with slots."""

    @property
    def slot_id(self) -> int:
        """Which one it has: from 0 to `slots` - 1."""
        ...


@runtime_checkable
class HasSlots(TargetEngine, Protocol):
    """An engine that keeps as many sessions open at once as it has slots. What one does changes no other's rows."""

    @property
    def slots(self) -> int:
        """How many; at least one."""
        ...

    def open(
        self, prompt: Sequence[int], sampling: SamplingParams, *, cache_prompt: bool = True, slot: int | None = None
    ) -> SlotSession:
        """As `TargetEngine.open`, in `slot`, which must be free, or in the free one that suits the prompt best."""
        ...


@runtime_checkable
class VerifiesTogether(HasSlots, Protocol):
    """An engine that can forward several sessions at once. One that is not forwards them one after the other."""

    def together(self, width: int) -> int:
        """How many sessions may forward `width` tokens each at once, `width` being one of the lane's: their rows were
        shown to be those that each has alone. 1 where that was not shown for any two.
        """
        ...

    def verify_together(self, wishes: Sequence[tuple[TargetSession, Sequence[int]]]) -> Sequence[Rows]:
        """One forward of `[pending] + proposals` of every session, as `verify`, all padded to the widest of them.

        Each session must be committed or rolled back afterwards. Raises EngineError: then all of them have failed.
        """
        ...


@runtime_checkable
class RemembersConversations(Protocol):
    """An engine that can keep in host memory what its slots give up, and write it back when it comes up again.

    No answer depends on what it keeps. One that is only a `TargetEngine` keeps what its slots hold.
    """

    def remember(self, room: Callable[[int], int]) -> None:
        """Begin to. `room(held)` says how many bytes may be held in all while `held` are; asked for every request."""
        ...

    @property
    def remembered(self) -> ConversationTotals:
        """How that stands; safe from any thread."""
        ...


@runtime_checkable
class ReadsPromptsFast(Protocol):
    """An engine that reads prompts faster where answers may depend on what was asked before, as stock's do.

    It then keeps whatever prefix a prompt shares with earlier ones and their answers, and may read long prompts in
    another setting than its lane's. Cells are the same with speculation on and off for equal histories of requests;
    otherwise they are the same whatever was asked before.
    """

    def read_prompts_fast(self, free: Callable[[], int]) -> None:
        """Begin to, where it can. `free()` says how many bytes of memory there are; asked for every long prompt."""
        ...

    @property
    def prompts_read(self) -> str:
        """Where long prompts are read, and why, for a person; safe from any thread."""
        ...


@runtime_checkable
class Verifier(Protocol):
    """Loads target models. `name` is the registry name."""

    name: str

    def load(self, pin: TargetPin, lane: Lane | None, options: EngineOptions) -> TargetEngine:
        """Load `pin` in `lane`, or in the lane that a check at load finds safe when `lane` is None.

        Raises EngineError or BrokenModel, naming the model.
        """
        ...


@runtime_checkable
class Probe(Protocol):
    """A loaded model in one setting, reached below the sessions: what certification compares and times.

    One sequence of cells, filled from position 0 on. All methods raise EngineError when the engine fails.
    """

    engine: EnginePin
    n_ctx: int  # tokens
    n_vocab: int
    obstacle: str  # why rejected tokens cannot be cut from this model's cache; empty when they can
    seconds: float  # how long the last forward took

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without BOS."""
        ...

    def feed(self, tokens: Sequence[int]) -> None:
        """Forward `tokens` as one prompt block, without rows."""
        ...

    def rows(self, tokens: Sequence[int], width: int) -> list[bytes]:
        """One forward of `tokens`, padded to `width`; for each token a digest of its row's exact bits."""
        ...

    def cut(self, size: int) -> bool:
        """Keep the first `size` cells; False when this kind of memory cannot."""
        ...

    def clear(self) -> None:
        """Forget every cell."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...


@runtime_checkable
class CertifiableVerifier(Verifier, Protocol):
    """A verifier whose models can be certified. One that is only a `Verifier` keeps to its own check at load."""

    def fingerprint(self, state_dir: Path | None) -> str:
        """`EnginePin.fingerprint` of the engine that would be loaded, found without loading it."""
        ...

    def probe(self, pin: TargetPin, setting: EngineSetting, max_width: int, options: EngineOptions) -> Probe:
        """Load `pin` in `setting`, with room for forwards of up to `max_width` tokens.

        The setting's `environment` is in force already when this is called. Raises EngineError or BrokenModel.
        """
        ...


@runtime_checkable
class RefusesModels(Protocol):
    """A verifier that does not compute every model that a pin can be taken of, and knows which."""

    def unfit_for(self, pin: TargetPin, options: EngineOptions, /) -> str:
        """Why `load` without a lane would refuse `pin`; empty when nothing speaks against it. Raises no PilotfishError.

        Cheap: no weights are read, and what took a look is remembered in `options.state_dir`.
        """
        ...


@runtime_checkable
class ReadsLogits(Protocol):
    """A probe whose rows can be had as they are, to compare one engine with another."""

    def logits(self, tokens: Sequence[int], width: int) -> bytes:
        """One forward as `Probe.rows`; the tokens' rows, `(len(tokens), n_vocab)` float32 in this machine's order."""
        ...


@runtime_checkable
class StepsTogether(Protocol):
    """A probe of an engine that `VerifiesTogether`, where requests at once may share forwards."""

    def together(self, sequences: int, *, exact: bool) -> JointStep | None:
        """Time plain steps of `sequences` requests in one forward; None where they take turns.

        With `exact` only as many share it as were found to keep the rows that each has alone. Raises EngineError.
        """
        ...


@runtime_checkable
class ReadsPromptsApart(Protocol):
    """A probe of an engine that `ReadsPromptsFast`."""

    prompts_apart: bool  # whether a lane in the probe's setting reads prompts of a whole block with stock's cache types


@runtime_checkable
class TellsDevices(Protocol):
    """A verifier that may compute on accelerators. One without this computes on the processor."""

    def devices(self) -> tuple[str, ...]:
        """The accelerators that `load` may put layers on, by the engine's names; loads nothing. Raises EngineError."""
        ...


@runtime_checkable
class ReadsVocabularies(Protocol):
    """A verifier that can open a vocabulary without its weights."""

    def vocabulary(self, source: TargetPin | Path, /) -> AbstractContextManager[Vocabulary]:
        """The vocabulary of a GGUF or a tokenizer file. Raises PilotfishError."""
        ...


@runtime_checkable
class TellsFootprint(Protocol):
    """A verifier that knows what a target takes. Of another's target the weights are counted, and no cache."""

    def footprint(self, pin: TargetPin, options: EngineOptions) -> Footprint:
        """What `load` will take, from metadata alone. Raises BrokenModel or EngineError."""
        ...


@runtime_checkable
class TellsMemory(Protocol):
    """A verifier that can be asked about accelerators. Without this only the system's memory is known."""

    def memory(self, device: str) -> DeviceMemory | None:
        """The memory of `device`, a name as in `Footprint`; None where the engine has no such device."""
        ...


@runtime_checkable
class Requantizes(Protocol):
    """A verifier that can write weights in another number format, for the lab."""

    def requantize(self, source: Path, target: Path, kind: str) -> None:
        """Write the model `source` to `target` as `kind`, e.g. `Q4_0`. Raises EngineError."""
        ...


class VerifierFactory(Protocol):
    """Builds a verifier from its own config table."""

    def __call__(self, config: Mapping[str, Any], /) -> Verifier: ...
