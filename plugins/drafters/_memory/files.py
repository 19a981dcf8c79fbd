"""One model's memory on disk: a folder of append-only files, each written by one process at a time.

`<root>/<key>/model.json` says whose memory it is, `<root>/<key>/<time>-<random>.seg` hold the passages (see
`_memory_records`). A process locks the file while it appends; one that finds it locked takes another. Forgetting is
unlinking: the oldest file when there are too many tokens or it is too old, the whole folder when the user asks. A
process that finds another `model.json`, or none, knows that the memory was cleared. Folders are 0700, files 0600.

Age alone removes nothing at first sight: a file of somebody else's that is too old goes only when a younger one lies
beside it. Where everything is too old the clock may be wrong, and what is not read does no harm meanwhile.

A record is one `write`. A crash leaves at most a torn record at a file's end, which the next writer cuts off.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from pilotfish.hooks.types import TargetPin
from pilotfish.plugins.drafters._memory.clock import now, steady
from pilotfish.plugins.drafters._memory.config import DAY, MemoryConfig
from pilotfish.plugins.drafters._memory.records import ITEM, Passage, Read, pack, unpack

log = logging.getLogger("pilotfish.memory")

ABOUT = "model.json"
CLEARED = "cleared"  # in the root: touched when every memory was cleared
SUFFIX, ASIDE = ".seg", ".damaged"
FILES = 8  # that a full memory is spread over, so that the oldest eighth goes at once
RECENT = 4  # files among which one with room is looked for
LARGEST = 256 << 20  # bytes of a file that is looked into
PRUNE_SECONDS = 3600.0

Stamp = tuple[int, int]  # inode, modification time in ns: tells one state of a file from the next


@dataclass(frozen=True, slots=True)
class MemoryOwner:
    """Whose memory it is: ids mean the same text only under the same weights' tokenizer."""

    name: str
    weights: tuple[str, ...]  # digests
    tokenizer: str  # fingerprint

    @classmethod
    def of(cls, pin: TargetPin) -> MemoryOwner:
        return cls(pin.name, tuple(weight.digest for weight in pin.weights), pin.tokenizer.fingerprint)

    @property
    def key(self) -> str:
        """The folder's name: 32 hex digits. The model's name does not enter."""
        return hashlib.sha256("\n".join((*self.weights, self.tokenizer)).encode()).hexdigest()[:32]


class MemoryFiles:
    """Reads and appends to one model's folder. Methods may raise OSError; one thread at a time, but for `cleared`."""

    def __init__(self, config: MemoryConfig, identity: MemoryOwner) -> None:
        self.folder = config.root / identity.key
        self._config = config
        self._identity = identity
        self._about: Stamp | None = None  # of `model.json`, once seen or written
        self._sound: dict[Path, tuple[int, float]] = {}  # of files this process wrote: size, time of the first passage
        self._pruned = -PRUNE_SECONDS  # by the steady clock

    def cleared(self) -> bool:
        """Whether somebody removed the folder since this process saw it. Costs a `stat`."""
        return self._about is not None and self._stamp() != self._about

    def accept(self) -> None:
        """Take the folder as it is now: `cleared` speaks of what happens from here on."""
        self._about = self._stamp()

    def read(self) -> list[Passage]:
        """Every passage young enough, oldest first; the newest `tokens` of the config, to a passage."""
        self.accept()
        self.prune()
        oldest = now() - self._config.seconds
        passages: list[Passage] = []
        for path in self._segments():
            passages += (passage for passage in _look_into(path).passages if passage.time >= oldest)
        passages.sort(key=lambda passage: passage.time)  # two processes' files overlap in time
        room = self._config.tokens
        for i in range(len(passages) - 1, -1, -1):
            room -= len(passages[i].tokens) + 1
            if room < 0:
                return passages[i + 1 :]
        return passages

    def append(self, passage: Passage) -> None:
        """Keep a passage; the rest of the folder makes room for it."""
        record = pack(passage)
        self._make_folder()
        path, fd = self._open()
        try:
            size, begun = self._sound.get(path, (0, passage.time))
            written = os.write(fd, record)
            if written != len(record):
                os.ftruncate(fd, size)
                raise OSError(errno.ENOSPC, "no room for a whole record", str(path))
        finally:
            os.close(fd)
        self._sound[path] = (size + written, begun)
        if steady() - self._pruned > PRUNE_SECONDS or self._full(size + written, begun):
            self.prune()

    def prune(self) -> None:
        """Remove the files that are too old, then the oldest until the rest is small enough."""
        self._pruned = steady()
        sizes, aged = self._by_age(now() - self._config.seconds)
        for path, size in aged:
            if sizes or path in self._sound:
                path.unlink(missing_ok=True)
            else:
                sizes.append((path, size))
        self._sound = {path: self._sound[path] for path, _ in sizes if path in self._sound}
        excess = sum(size for _, size in sizes) - self._config.tokens * ITEM
        for path, size in sizes[:-1]:
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            excess -= size

    def _by_age(self, oldest: float) -> tuple[list[tuple[Path, int]], list[tuple[Path, int]]]:
        """The files with their sizes, oldest first: those written to since `oldest`, and the others."""
        young: list[tuple[Path, int]] = []
        aged: list[tuple[Path, int]] = []
        for path in self._files():
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                (aged if status.st_mtime < oldest else young).append((path, status.st_size))
        return young, aged

    def _full(self, size: int, begun: float) -> bool:
        # A file goes when its youngest passage is too old: it holds a day's, or less if little age is allowed.
        span = min(DAY, self._config.seconds / FILES)
        return size >= self._config.tokens * ITEM // FILES or now() - begun > span

    def _open(self) -> tuple[Path, int]:
        """A locked file to append to: a recent one that has room and that nobody writes just now, or a new one."""
        for path in reversed(self._segments()[-RECENT:]):
            if (fd := self._take(path)) is not None:
                return path, fd
        path = self.folder / f"{time.time_ns():020d}-{secrets.token_hex(4)}{SUFFIX}"
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        return path, fd

    def _take(self, path: Path) -> int | None:
        """`path`, open for appending, with its torn end cut off. None when it is full or another process has it."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._sound[path] = size, begun = self._checked(path, fd)
            if os.fstat(fd).st_nlink > 0 and not self._full(size, begun):
                return fd
        except BlockingIOError:
            pass
        os.close(fd)
        return None

    def _checked(self, path: Path, fd: int) -> tuple[int, float]:
        """How much of the file is sound, after cutting off what is not, and the time of its first passage."""
        size = os.fstat(fd).st_size
        known = self._sound.get(path)
        if known and known[0] == size:
            return known
        found = _look_into(path)
        if found.sound < size:
            os.ftruncate(fd, found.sound)
        return found.sound, found.passages[0].time if found.passages else time.time()

    def _make_folder(self) -> None:
        self.folder.parent.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.folder.parent, self.folder):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
        if self.folder.stat().st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "belongs to another user; remove it or set another folder", self.folder)
        self.folder.chmod(0o700)
        with contextlib.suppress(FileExistsError):
            fd = os.open(self.folder / ABOUT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(json.dumps(asdict(self._identity)).encode())
            self.accept()
        if self._about is None:
            self.accept()

    def _stamp(self) -> Stamp | None:
        return stamp_of(self.folder / ABOUT)

    def _segments(self) -> list[Path]:
        """Oldest first."""
        return [path for path in self._files() if path.suffix == SUFFIX]

    def _files(self) -> list[Path]:
        return sorted(path for path in files_of(self.folder) if path.suffix in (SUFFIX, ASIDE))


def files_of(folder: Path) -> list[Path]:
    """The regular files of a folder; none if it is not there."""
    try:
        return [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def stamp_of(path: Path) -> Stamp | None:
    """None when there is no such file, or none that may be looked at."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def inspect(path: Path) -> Read:
    """What a file holds, without touching it. Raises OSError."""
    if path.stat().st_size > LARGEST:
        return Read()
    return unpack(path.read_bytes())


def _look_into(path: Path) -> Read:
    """What a file holds; one that holds nothing of ours is put aside. A file that was removed holds nothing."""
    try:
        found = inspect(path)
        if found.damaged:
            log.warning("%s: %d damaged bytes are passed over; the rest is used", path, found.damaged)
        elif not found.ours and path.stat().st_size > 0:
            log.warning("%s: no memory can be read from it; it is kept as %s", path, path.with_suffix(ASIDE).name)
            path.rename(path.with_suffix(ASIDE))
    except FileNotFoundError:
        return Read()
    return found
