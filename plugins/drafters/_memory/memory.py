"""What one model wrote in earlier requests, indexed: the second source that `suffix` drafts from.

Passages stand one after the other in one array with `BREAK` between them, an id that no history holds, so a match
never spans two of them. The oldest are dropped, whole, when there are too many tokens or they are too old.

Nothing here makes a request wait. Reading the files, entering what a request left and writing it down happen on a
thread that lives as long as there is work; while it changes the index, a drafter that looks is told "not now". The
disk is never needed: when it fails the log says so once, and the memory goes on without.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from array import array
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from pilotfish.plugins.drafters._memory.clock import now, steady
from pilotfish.plugins.drafters._memory.config import MemoryConfig
from pilotfish.plugins.drafters._memory.files import CLEARED, MemoryFiles, MemoryOwner, stamp_of
from pilotfish.plugins.drafters._memory.records import Passage
from pilotfish.plugins.drafters._suffix.index import LEVELS, MAX_MATCH, SuffixIndex

log = logging.getLogger("pilotfish.memory")

BREAK = -1
LEAST = LEVELS[0] + 1  # tokens of a passage that can be of any use: a match and what followed it
SLICE = 1 << 16  # tokens entered at a time while loading: about 40 ms on one slow core
KEEP = 7 / 8  # of the most tokens stays when the oldest are dropped, so that it happens seldom
CHECK_SECONDS = 3600.0  # between two looks for passages that are too old
EXIT_SECONDS = 2.0  # that a process which ends waits for the last passage to be written

_T = TypeVar("_T")


class AnswerMemory:
    """One model's memory in this process. `look` belongs to the engine's thread, the rest may come from any."""

    def __init__(self, config: MemoryConfig, identity: MemoryOwner) -> None:
        self.epoch = 0  # counts how often everything was forgotten
        self._config = config
        self._files = MemoryFiles(config, identity) if config.mode == "disk" else None
        self._marker = stamp_of(config.root / CLEARED)
        self._lock = threading.Lock()  # held while the index changes or is looked at
        self._index = SuffixIndex(array("i"))
        self._passages: deque[tuple[int, float]] = deque()  # (tokens with the break, when it ended), oldest first
        self._last = array("i")  # the last request whole, prompt and output
        self._checked = steady()
        self._work: deque[Callable[[], object]] = deque()
        self._worker: threading.Thread | None = None
        self._starting = threading.Lock()
        self._disk_failed = False
        if files := self._files:
            self._do(lambda: self._load(files))

    @property
    def tokens(self) -> int:
        """How many tokens are held, breaks included."""
        return len(self._index.tokens)

    def nbytes(self) -> int:
        """Bytes of working memory held."""
        return self._index.nbytes()

    def begin(self) -> int:
        """A request begins: notices a clear. The answer is what `remember` wants back."""
        self._notice_clear()
        if steady() - self._checked > CHECK_SECONDS:
            self._checked = steady()
            self._do(self._drop_old)
        return self.epoch

    def look(self, use: Callable[[SuffixIndex], _T]) -> _T | None:
        """`use(index)`, or None while the index is being changed. Never waits."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return use(self._index)
        finally:
            self._lock.release()

    def remember(self, tokens: array[int], prompt: int, epoch: int) -> None:
        """A request that began in `epoch` ended with `tokens`, of which the first `prompt` are its prompt."""
        self._notice_clear()
        ended = time.time()
        self._do(lambda: self._enter(tokens, prompt, epoch, ended))

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything asked for so far is done; False if `timeout` seconds were not enough."""
        if worker := self._worker:
            worker.join(timeout)
            return not worker.is_alive()
        return True

    def _notice_clear(self) -> None:
        marker = stamp_of(self._config.root / CLEARED)
        if marker == self._marker and not (self._files and self._files.cleared()):
            return
        log.info("the memory was cleared; this process forgets what it held")
        with self._lock:
            self._marker = marker
            self.epoch += 1
            self._index = SuffixIndex(array("i"))
            self._passages.clear()
            self._last = array("i")
            if self._files:
                self._files.accept()

    def _load(self, files: MemoryFiles) -> None:
        epoch, started = self.epoch, time.perf_counter()
        passages = self._on_disk(files.read) or []
        tokens = array("i")
        index = SuffixIndex(tokens)
        for passage in passages:
            tokens.extend(passage.tokens)
            tokens.append(BREAK)
            while len(tokens) - index.entered > SLICE:
                index.update(SLICE)
        index.update()
        with self._lock:
            if epoch != self.epoch:
                return
            self._index = index
            latest = now()  # none is from the future, whatever the clock was when it was written
            self._passages.extend((len(passage.tokens) + 1, min(passage.time, latest)) for passage in passages)
        seconds = time.perf_counter() - started
        log.info("%d tokens of %d earlier requests read in %.2f s", len(tokens), len(passages), seconds)

    def _enter(self, tokens: array[int], prompt: int, epoch: int, ended: float) -> None:
        with self._lock:
            if epoch != self.epoch:
                return
            kept = tokens[self._repeated(tokens) if self._config.prompts else prompt :]
            kept = kept[-int(KEEP * self._config.tokens) + 1 :]
            if self._config.prompts:
                self._last = tokens
            if len(kept) < LEAST:
                return
            self._index.tokens.extend(kept)
            self._index.tokens.append(BREAK)
            self._index.update()
            self._passages.append((len(kept) + 1, ended))
            if self.tokens > self._config.tokens:
                self._shrink()
        if files := self._files:
            self._on_disk(lambda: None if files.cleared() else files.append(Passage(ended, kept)))

    def _repeated(self, tokens: array[int]) -> int:
        """How many tokens at the start were remembered with the last request, but for those a match may need."""
        n = min(len(tokens), len(self._last))
        differs = np.frombuffer(tokens, np.intc, n) != np.frombuffer(self._last, np.intc, n) if n else np.empty(0, bool)
        shared = int(differs.argmax()) if differs.any() else n
        return max(0, shared - MAX_MATCH)

    def _drop_old(self) -> None:
        with self._lock:
            self._shrink()
        if self._files:
            self._on_disk(self._files.prune)

    def _shrink(self) -> None:
        """Drop the passages that are too old and, if there are too many tokens, the oldest of the rest."""
        most = KEEP * self._config.tokens if self.tokens > self._config.tokens else self.tokens
        oldest = now() - self._config.seconds
        dropped = 0
        while self._passages and (self.tokens - dropped > most or self._passages[0][1] < oldest):
            dropped += self._passages.popleft()[0]
        if dropped == self.tokens:
            self._index = SuffixIndex(array("i"))
        elif dropped:
            self._index.drop(dropped)

    def _on_disk(self, call: Callable[[], _T]) -> _T | None:
        try:
            result = call()
        except OSError as error:
            if not self._disk_failed:
                log.warning("%s: %s; the memory goes on without the disk", self._config.root, error)
            self._disk_failed = True
            return None
        self._disk_failed = False
        return result

    def _do(self, job: Callable[[], object]) -> None:
        with self._starting:
            self._work.append(job)
            if self._worker is None:
                # A daemon thread: a disk that hangs must not keep the process from ending.
                worker = threading.Thread(target=self._run, name="memory", daemon=True)
                worker.start()
                self._worker = worker
                _workers.add(worker)

    def _run(self) -> None:
        while True:
            with self._starting:
                if not self._work:
                    self._worker = None
                    return
                job = self._work.popleft()
            try:
                job()
            except Exception:
                log.exception("the memory could not take something in; it goes on without")


_workers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


@atexit.register
def _write_the_last() -> None:
    for worker in list(_workers):
        worker.join(EXIT_SECONDS)
