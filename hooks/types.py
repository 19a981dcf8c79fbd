"""The values that cross a plugin boundary. Frozen, small, and free of any engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Ack:
    """What a party says it holds: after `round` commits, `position` token ids whose digest is `digest`.

    `digest` is that of `pilotfish.hooks.history.History`, lowercase hex.
    """

    round: int
    position: int
    digest: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """Token ids a drafter expects next, in order, in the drafter's own vocabulary.

    An empty proposal means "not now". `confidence[i]` is the drafter's own estimate in [0, 1] that token i is
    right, given that all before it are; it may be empty (unknown) or shorter than `tokens`. Ids are plain ints: a
    numpy integer is none. `pilotfish.hooks.proposals.checked` is what decides.
    """

    tokens: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.tokens)

    def first(self, k: int) -> Proposal:
        """The proposal cut to its first `k` tokens."""
        return Proposal(self.tokens[:k], self.confidence[:k])


EMPTY = Proposal()


class Placement(StrEnum):
    """Where a drafter computes, which decides how it is called."""

    INLINE = "inline"  # on the engine's thread: `propose` and `commit` return within a millisecond, always
    ENGINE_THREAD = "engine thread"  # on it and waited for: it computes with the target's own engine library
    THREAD = "thread"  # on a thread of its own beside the target
    PROCESS = "process"  # in a process of its own, which pilotfish starts for it
    REMOTE = "remote"  # on another machine, so that drafting while the target computes costs nothing here


class Parity(StrEnum):
    """What is promised about an answer's ids, from the strictest promise to none at all."""

    STOCK = "stock"  # the lane holds stock's single-token step under stock settings
    LANE = "lane"  # the same ids with speculation on, off, or with any drafter
    NONE = "none"  # nothing was shown to be equal

    def keeps(self, wanted: Parity) -> bool:
        """Whether this promise is at least as strict as `wanted`."""
        strictest_first = list(Parity)
        return strictest_first.index(self) <= strictest_first.index(wanted)


@dataclass(frozen=True, slots=True)
class EngineSetting:
    """What decides which code an engine runs for a forward of a given shape. Two settings of equal values are one.

    Cache types have the engine's own names. `environment` is set before the engine's library loads.
    """

    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attention: bool | None = True  # None: the engine decides
    repack: bool = True  # the engine may lay weights out anew when it loads them
    environment: tuple[tuple[str, str], ...] = ()
    engine: str = "llama"  # the registry name of the verifier that computes in it

    @property
    def title(self) -> str:
        """For people: `flash, K bf16, V f16, not repacked, GGML_CPU_TILED_MM=0`; other engines' begin with `ik: `."""
        flash = {True: "flash", False: "no flash", None: "flash auto"}[self.flash_attention]
        parts = [flash, f"K {self.cache_type_k}", f"V {self.cache_type_v}", *([] if self.repack else ["not repacked"])]
        title = ", ".join(parts + [f"{name}={value}" for name, value in self.environment])
        return title if self.engine == "llama" else f"{self.engine}: {title}"


@dataclass(frozen=True, slots=True)
class Lane:
    """An engine setting and the forward-pass widths that give bit-identical rows under it.

    A forward of width w feeds w tokens of one sequence: the pending token, then w - 1 proposals. The coordinator
    only runs forwards whose width is in `widths`; a plain step has the smallest width of the lane.

    With `prefill_block` prompts are fed in blocks of that many tokens whatever the launch asks for: the rows were
    compared after such blocks. `exact_cache` says that cells do not depend on the block that wrote them, so that any
    prefix of an earlier request may be kept. Beyond `max_context` cells nothing was compared: only forwards of the
    narrowest width are run there.
    """

    name: str = field(default="plain", compare=False)  # for people
    widths: tuple[int, ...] = (1,)
    setting: EngineSetting = EngineSetting()
    parity: Parity = Parity.LANE
    reason: str = ""  # why the lane is no wider than it is, for a person
    prefill_block: int | None = None
    exact_cache: bool = False
    max_context: int | None = None

    @property
    def max_width(self) -> int:
        """The widest forward of the lane, in tokens."""
        return self.widths[-1]

    def fit(self, width: int) -> int:
        """The widest width of the lane that is at most `width`, or the narrowest there is."""
        return max((w for w in self.widths if w <= width), default=self.widths[0])

    def widest_at(self, position: int) -> int:
        """The widest forward allowed when `position` ids are committed, so that `position` - 1 cells are filled."""
        if self.max_context is None:
            return self.max_width
        return self.fit(self.max_context - position + 1)

    def pad(self, width: int) -> int:
        """The narrowest width of the lane that holds `width` tokens. Raises ValueError when none does."""
        for candidate in self.widths:
            if candidate >= width:
                return candidate
        raise ValueError(f"a forward of {width} tokens is wider than the lane {self.name!r} ({self.max_width})")


def in_blocks(tokens: int, widths: Sequence[int]) -> list[int]:
    """Which of a lane's `widths` make up so many tokens, the widest first; 1 must be among them."""
    blocks: list[int] = []
    for width in reversed(widths):
        blocks += [width] * ((tokens - sum(blocks)) // width)
    return blocks


@dataclass(frozen=True, slots=True)
class TokenizerPin:
    """What must be equal for two tokenizers to be the same one.

    `fingerprint` is a SHA-256 (hex) over every id's bytes, type and score, the merges, the special ids and the
    add-bos/add-eos flags.
    """

    fingerprint: str
    model: str  # the field's name for the algorithm: gpt2, llama, bert, ...
    n_vocab: int
    bos: int | None = None
    eos: int | None = None
    add_bos: bool = False
    add_eos: bool = False


@dataclass(frozen=True, slots=True)
class WeightPin:
    """One weight file: its digest as Ollama writes it (`sha256:<hex>`), its path and its size in bytes."""

    digest: str
    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class TargetPin:
    """What must stay equal for a promise about a target model to hold."""

    name: str  # as Ollama shows it: smollm2:135m
    weights: tuple[WeightPin, ...]
    tokenizer: TokenizerPin
    manifest_digest: str | None = None  # None when the model was opened as a bare file
    format: str = "gguf"
    architecture: str = ""
    quantization: str = ""

    @property
    def path(self) -> Path:
        """The first weight file, which is the one an engine opens."""
        return self.weights[0].path


@dataclass(frozen=True, slots=True)
class EnginePin:
    """Which engine computes: its name, its own version string and a SHA-256 (hex) over its libraries."""

    name: str
    version: str
    fingerprint: str


class FarEnd(NamedTuple):
    """Another machine that computes layers: where it is reached, as host:port, and what computes there, in one line."""

    endpoint: str
    pin: str = ""

    def __str__(self) -> str:
        return f"{self.endpoint} ({self.pin})" if self.pin else self.endpoint


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a verifier is asked to load a model. Everything the launch did not set keeps the engine's default."""

    n_ctx: int = 4096  # tokens per sequence
    slots: int = 1  # sequences, for as many requests at a time; an engine without slots has one whatever this says
    slot_similarity: float = 0.1  # share of a prompt that a slot must hold to be chosen for it; 0: never for that
    threads: int | None = None  # None: the engine's own choice
    batch_size: int = 512  # tokens fed per prefill block
    gpu_layers: int | None = None
    main_gpu: int | None = None  # the one accelerator that may be used; None: all of them
    use_mmap: bool = True
    cache_type_k: str | None = None  # set only when the user asked for it
    cache_type_v: str | None = None
    flash_attention: bool | None = None
    far_ends: tuple[FarEnd, ...] = ()  # other machines that compute layers, too; an engine without such computes here
    tensor_split: tuple[float, ...] = ()  # each device's share of the layers, far ends first; empty: by free memory
    far_end_deadline: float = 60.0  # seconds without any progress after which far ends count as lost
    state_dir: Path | None = None  # where checks already made are remembered; None: remember nothing


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory that a drafter will take, in bytes.

    `device` is `cpu` for the system's memory, or the engine's own name of an accelerator (`CUDA0`, `Metal`, `NV`).
    """

    weights: int
    cache: int  # for one session of the target's whole context, working buffers included
    device: str = "cpu"

    @property
    def total(self) -> int:
        return self.weights + self.cache


class JointStep(NamedTuple):
    """What plain steps of several requests at once take: `joined` of them share a forward of `seconds`, beside `alone`
    seconds for one of them by itself."""

    joined: int
    seconds: float
    alone: float


class DeviceMemory(NamedTuple):
    """What an engine says of an accelerator's memory, in bytes. `shared`: it is the system's own memory."""

    free: int
    total: int
    shared: bool


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """One request's sampling options, named and defaulted as llama-server's `/completion`.

    `seed` is the 32-bit seed in force (a request's -1 is replaced by a random one before it gets here).
    `temperature <= 0` is greedy. `n_probs > 0` asks for that many log-probabilities per token.
    `logit_bias` pairs are (token id, bias); `-inf` bans a token.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int = 0
    min_keep: int = 0
    grammar: str = ""  # GBNF
    json_schema: str = ""  # JSON text; the verifier converts it; ignored when `grammar` is set
    schemas: tuple[tuple[str, str], ...] = ()  # more of them, by the names under which `grammar` refers to them
    n_probs: int = 0
    ignore_eos: bool = False
    logit_bias: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token's log-probability before sampling, in nats, with the piece of text it stands for."""

    id: int
    logprob: float
    piece: bytes
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What observers of sessions learn: which target, in which lane, with which drafters."""

    target: TargetPin
    lane: Lane
    drafters: tuple[str, ...] = ()
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SessionReport:
    """What a closed session did. Counts are tokens, times are seconds."""

    committed: int = 0
    drafted: int = 0
    accepted: int = 0
    rounds: int = 0
    seconds: float = 0.0
    drafters: tuple[str, ...] = ()  # those that had a guard, whether or not they were asked
    dropped: dict[str, str] = field(default_factory=dict)  # drafter name -> why it was dropped


@dataclass(frozen=True, slots=True)
class ConversationTotals:
    """The conversations that an engine keeps beside its slots, in memory and on disk; counts since it was loaded."""

    entries: int = 0
    bytes: int = 0
    room: int = 0  # bytes that were allowed when it was last asked
    hits: int = 0  # times that one was written back into a slot
    forgotten: int = 0  # given up for newer ones, or because memory got short
    refused: int = 0  # larger than the room
    failed: int = 0  # could not be read out or written back
    disk_entries: int = 0  # files of this model, build and setting
    disk_bytes: int = 0  # what they take
    disk_room: int = 0  # bytes that all models' files may take; 0: none are kept
    disk_hits: int = 0  # hits that came from a file
    disk_failed: int = 0  # could not be written or used
    obstacle: str = ""  # why nothing is remembered, for a person; empty when something may be


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """What a drafter keeps on disk for one model. Times are seconds since the epoch, None when nothing is readable."""

    key: str
    model: str  # its name when the memory was begun
    weights: tuple[str, ...]  # digests, as Ollama writes them
    requests: int
    tokens: int
    bytes: int
    oldest: float | None
    newest: float | None
    path: Path


def shared_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading ids two sequences share."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n
