"""Drafts what followed when the last few tokens occurred before. The default drafter.

Before means: earlier in this request, or in what the model wrote in earlier ones (see `_memory`). The two are searched
alike and compete: the one from which more tokens are expected to be accepted makes the proposal. Cheap enough to ask
every round: a proposal of 16 takes tens of microseconds however long the history and full the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pilotfish.hooks.history import History
from pilotfish.hooks.protocols import DrafterFactory, DraftSession
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import Ack, MemoryInfo, Placement, Proposal, TargetPin
from pilotfish.plugins._options import DrafterTable
from pilotfish.plugins.drafters._memory import admin
from pilotfish.plugins.drafters._memory.config import KEYS, MemoryConfig
from pilotfish.plugins.drafters._memory.files import MemoryOwner
from pilotfish.plugins.drafters._memory.kept import KeptTaught, kept_file
from pilotfish.plugins.drafters._memory.memory import AnswerMemory
from pilotfish.plugins.drafters._suffix.calibration import LOCAL, MEMORY, RequestCalibration, Taught
from pilotfish.plugins.drafters._suffix.index import LEVELS, MAX_MATCH, SuffixIndex, digests_at_end
from pilotfish.plugins.drafters._suffix.priors import priors
from pilotfish.plugins.drafters._suffix.scoring import Path, trace


@dataclass(frozen=True, slots=True)
class SuffixConfig:
    """`[drafters.suffix]`"""

    min_match: int = LEVELS[0]  # tokens that must repeat before anything is proposed
    max_candidates: int = 8  # earlier occurrences that are compared, in each source
    min_probability: float = 0.2  # a token less likely than this to be accepted, all before it included, is left out
    memory: MemoryConfig = field(default_factory=MemoryConfig)

    @classmethod
    def parse(cls, table: Mapping[str, Any] | None) -> SuffixConfig:
        """Raises ConfigError, whose message starts with the key's path."""
        options = DrafterTable("suffix", table, ("min_match", "max_candidates", "min_probability", *KEYS))
        default = cls()
        return cls(
            min_match=options.integer("min_match", default.min_match, LEVELS[0], MAX_MATCH),
            max_candidates=options.integer("max_candidates", default.max_candidates, 1, 64),
            min_probability=options.number("min_probability", default.min_probability, 0.0, 1.0),
            memory=MemoryConfig.parse(options, table or {}),
        )


class SuffixSession:
    """One request's history, the index over it, and what its proposals taught."""

    def __init__(
        self,
        config: SuffixConfig,
        prompt: Sequence[int],
        memory: AnswerMemory | None,
        taught: Taught,
        kept: KeptTaught,
    ) -> None:
        self._config = config
        self._history = History(prompt)
        self._prompt = len(prompt)
        self._index = SuffixIndex(self._history.tokens)
        self._memory = memory
        self._epoch = memory.begin() if memory else 0
        self._acceptance = RequestCalibration(taught)
        self._kept = kept
        self._expected: tuple[Path, ...] = ()  # of the last `propose`, to be compared with what comes

    def propose(self, k: int) -> Proposal:
        digests = digests_at_end(self._history.tokens)
        paths = [self._path(self._index, LOCAL, k, digests)]
        if self._memory and (path := self._memory.look(lambda index: self._path(index, MEMORY, k, digests))):
            paths.append(path)
        self._expected = tuple(paths)
        return max(paths, key=lambda path: path.worth).proposal()  # a tie goes to this request's own text

    def commit(self, tokens: Sequence[int]) -> Ack:
        ack = self._history.commit(tokens)
        for path in self._expected:
            path.observe(tokens, self._acceptance)
        self._expected = ()
        self._index.update()
        return ack

    def rollback(self) -> Ack:
        # What was expected at this point is still compared with what is committed here, verified or not.
        return self._history.ack()

    def close(self) -> None:
        self._acceptance.teach()
        self._kept.changed()
        if self._memory:
            self._memory.remember(self._history.tokens, self._prompt, self._epoch)

    def _path(self, index: SuffixIndex, source: int, k: int, digests: Sequence[int]) -> Path:
        config = self._config
        matches = index.matches(self._history.tokens, config.min_match, config.max_candidates, digests)
        return trace(index.tokens, matches, k, config.min_probability, source, self._acceptance)


class SuffixDrafter:
    """Longest-suffix drafting; see the module's docstring."""

    name = "suffix"
    sessions = 64  # that a draft host may keep open at once
    placement = Placement.INLINE

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.config = SuffixConfig.parse(config)
        self._taught: dict[MemoryOwner, Taught] = {}
        self._kept: dict[MemoryOwner, KeptTaught] = {}
        self._memories: dict[MemoryOwner, AnswerMemory] = {}

    def open(self, target: TargetPin, prompt: Sequence[int]) -> DraftSession:
        identity = MemoryOwner.of(target)
        taught = self._taught_by(identity)
        return SuffixSession(self.config, prompt, self._memory_of(identity), taught, self._kept[identity])

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until what was learned so far is usable and written, the memory itself with `memory = "disk"` only."""
        memories = [memory.flush(timeout) for memory in self._memories.values()]
        return all(memories) and all(kept.flush(timeout) for kept in self._kept.values())

    def memories(self) -> list[MemoryInfo]:
        """What is on disk, of every model. Raises OSError."""
        return admin.memories(self.config.memory.root)

    def forget(self, info: MemoryInfo | None = None) -> None:
        """Remove one model's memory from the disk, or without `info` every model's, also that of running processes.

        Raises OSError.
        """
        if info:
            admin.forget(info)
        else:
            admin.forget_all(self.config.memory.root)

    def _taught_by(self, identity: MemoryOwner) -> Taught:
        if identity not in self._taught:
            taught = self._taught[identity] = Taught(priors())
            self._kept[identity] = KeptTaught(kept_file(identity), identity, taught)
        return self._taught[identity]

    def _memory_of(self, identity: MemoryOwner) -> AnswerMemory | None:
        if self.config.memory.mode == "off":
            return None
        if identity not in self._memories:
            self._memories[identity] = AnswerMemory(self.config.memory, identity)
        return self._memories[identity]


@hookimpl
def pilotfish_register_drafters(register: Callable[[str, DrafterFactory], None]) -> None:
    register(SuffixDrafter.name, SuffixDrafter)
