"""Whether a drafter suits a target: which bridge joins them, how much passes over it, and whether both fit in memory.

Nothing is generated and no weights are loaded: vocabularies and metadata decide.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pilotfish.daemon.config import files
from pilotfish.daemon.config.reader import parse
from pilotfish.daemon.config.types import ENGINES
from pilotfish.daemon.drafters.local_host import LocalHost
from pilotfish.daemon.drafters.memory_bounds import private_bytes
from pilotfish.daemon.drafters.memory_budget import memory_budget_for
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.coverage import text_coverage
from pilotfish.hooks.errors import AdmissionRefused, EngineError, ModelNotFound
from pilotfish.hooks.protocols import (
    CertifiableVerifier,
    LoadableDrafter,
    ReadsVocabularies,
    TellsFootprint,
    Verifier,
    Vocabulary,
)
from pilotfish.hooks.sample_text import SAMPLE
from pilotfish.hooks.types import EngineOptions, Footprint, TargetPin

TOKENIZER_SUFFIXES = (".json", ".model")
EXAMPLES = 12  # of tokens that the drafter lacks
HEAVY = 0.5  # of the target's weights: a drafter that reads this much for one token can hardly save time beside it
_HOW = {
    "identity": "the tokenizers are equal, ids pass through",
    "vocab_map": "ids are mapped one by one, by their bytes",
    "retokenize": "text is cut anew, aligned by bytes",
}


@dataclass(frozen=True, slots=True)
class Memory:
    """What both need. `refusal` is admission's arithmetic when the drafter does not fit beside the target now."""

    target: Footprint
    drafter: Footprint | None  # None when only its tokenizer is known
    refusal: str = ""

    @property
    def needed(self) -> int:
        """Bytes that both take of the target's device."""
        return sum(part.total for part in (self.target, self.drafter) if part and part.device == self.target.device)


@dataclass(frozen=True, slots=True)
class Pairing:
    """What is known of a target and a drafter before either is loaded."""

    target: str
    drafter: str
    bridge: str | None
    text_coverage: float | None  # the share of the target's tokens in a sample text that the drafter cuts alike
    mapped: int  # target ids that the drafter has too, byte for byte
    target_vocab: int
    drafter_vocab: int
    unmapped: tuple[str, ...]  # examples of those it has not, the most frequent first
    tokens_ratio: float | None  # the drafter's tokens for one of the target's, in the sample text
    memory: Memory | None

    @property
    def how(self) -> str:
        """What the bridge does, for people."""
        if self.bridge is None:
            return "no bridge joins them: one of the tokenizers does not spell text byte by byte"
        return _HOW.get(self.bridge, "a bridge of a plugin")

    @property
    def verdict(self) -> tuple[bool, str]:
        """Whether to use the pair on this machine, and the reason."""
        if self.bridge is None:
            return False, self.how
        memory = self.memory
        if memory is None or memory.drafter is None:
            return True, f"{self.how}; the drafter's weights are not known here"
        if memory.refusal:
            return False, f"{memory.refusal}; or run the drafter on another machine"
        if memory.drafter.device != memory.target.device:
            return True, f"{self.how}; the drafter has a device of its own"
        share = memory.drafter.weights / memory.target.weights
        if share >= HEAVY:
            return False, f"a token drafted here would cost {share:.0%} of a plain step: take a smaller drafter"
        return True, f"{self.how}; a drafted token reads {share:.0%} of what a plain step reads"

    def to_json(self) -> dict[str, Any]:
        usable, reason = self.verdict
        document = {**asdict(self), "usable": usable, "reason": reason}
        if self.memory:
            document["memory"] |= {"needed": self.memory.needed, "fits": not self.memory.refusal}
        return document


def pair(target: str, drafter: str, host: LocalHost, options: EngineOptions) -> Pairing:
    """Look at a pair. `drafter` may also be a tokenizer file. Raises ModelNotFound, BrokenModel or EngineError."""
    registry = Registry.load(files.load())
    verifier = _engine(registry, options)
    if not isinstance(verifier, ReadsVocabularies):
        raise EngineError(f"the engine {verifier.name} reads no vocabularies")
    pin = host.pin(target)
    with ExitStack() as opened:
        theirs = opened.enter_context(verifier.vocabulary(pin))
        ours = opened.enter_context(verifier.vocabulary(_source(drafter, host)))
        found = registry.bridge(ours, theirs)
        unmapped = _unmapped(ours, theirs)
        return Pairing(
            target=pin.name,
            drafter=drafter,
            bridge=found[0] if found else None,
            text_coverage=text_coverage(ours, theirs),
            mapped=theirs.pin.n_vocab - len(unmapped),
            target_vocab=theirs.pin.n_vocab,
            drafter_vocab=ours.pin.n_vocab,
            unmapped=tuple(_shown(theirs.piece(token)) for token in unmapped[:EXAMPLES]),
            tokens_ratio=_ratio(ours, theirs),
            memory=_memory(verifier, pin, drafter, host, options),
        )


def _engine(registry: Registry, options: EngineOptions) -> Verifier:
    """The first engine that is there: all read vocabularies alike. Raises EngineError with the remedies."""
    for name in ENGINES:
        verifier = registry.verifier(name)
        if isinstance(verifier, CertifiableVerifier):
            with contextlib.suppress(EngineError, OSError):
                verifier.fingerprint(options.state_dir)
                return verifier
    raise EngineError(f"reading vocabularies needs an engine; install one with: {', or: '.join(ENGINES.values())}")


def _source(drafter: str, host: LocalHost) -> TargetPin | Path:
    path = Path(drafter).expanduser()
    if path.is_dir() or path.suffix in TOKENIZER_SUFFIXES:
        if not path.exists():
            raise ModelNotFound(f"{path} is not there; correct the path, or name a model of the store")
        return path
    return host.pin(drafter)


def _unmapped(drafter: Vocabulary, target: Vocabulary) -> list[int]:
    """Target ids that the drafter has no id of equal bytes for; those of the sample text first, by how often."""
    have = set(_entries(drafter))
    missing = [token for token, entry in enumerate(_entries(target)) if entry not in have]
    used = Counter(target.encode(SAMPLE))
    return sorted(missing, key=lambda token: -used[token])


def _entries(vocabulary: Vocabulary) -> Iterator[tuple[bytes, bool]]:
    for token in range(vocabulary.pin.n_vocab):
        yield vocabulary.piece(token), vocabulary.special(token)


def _ratio(drafter: Vocabulary, target: Vocabulary) -> float | None:
    wanted = len(target.encode(SAMPLE))
    return round(len(drafter.encode(SAMPLE)) / wanted, 2) if wanted else None


def _shown(piece: bytes) -> str:
    return piece.decode("utf-8", "backslashreplace")


def _memory(
    verifier: Verifier, target: TargetPin, drafter: str, host: LocalHost, options: EngineOptions
) -> Memory | None:
    if not isinstance(verifier, TellsFootprint):
        return None
    whole = verifier.footprint(target, options)
    part = _drafter_footprint(drafter, target, host, options)
    try:
        if part is not None:
            memory_budget_for(target, verifier, options, private_bytes()).admit(drafter, part, ())
    except AdmissionRefused as refused:
        return Memory(whole, part, str(refused))
    return Memory(whole, part)


def _drafter_footprint(drafter: str, target: TargetPin, host: LocalHost, options: EngineOptions) -> Footprint | None:
    """What the drafter needs: a GGUF through libllama, a folder of safetensors through MLX; None for a tokenizer."""
    path = Path(drafter).expanduser()
    folder = path if path.is_dir() else path.parent
    if not path.is_dir() and path.suffix not in TOKENIZER_SUFFIXES:
        return _footprint("llama", _table("llama", drafter), target, host, options)
    if not any(folder.glob("*.safetensors")):
        return None
    return _footprint("mlx", _table("mlx", str(folder)), target, host, options)


def _table(name: str, model: str) -> dict[str, Any]:
    """The drafter's table as it would be: the user's own, with this model."""
    return {**files.load().drafters.tables.get(name, {}), "model": model}


def _footprint(
    name: str, table: dict[str, Any], target: TargetPin, host: LocalHost, options: EngineOptions
) -> Footprint | None:
    built = Registry.load(parse({"drafters": {name: table}})).drafter(name)
    return built.footprint(host, target, options) if isinstance(built, LoadableDrafter) else None
