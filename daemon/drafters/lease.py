"""Exclusive devices: one process at a time, by a file lock that names its owner.

Some devices break when a second process opens them (tinygrad's `NV` resets the card under the first). Whoever wants
one holds a lock on a file of its name in the runtime folder. The kernel drops the lock when the process ends, however
it ends, so that a lease never outlives its holder; nothing here ever touches the device.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from pilotfish.hooks.environment import variable
from pilotfish.hooks.errors import DeviceBusy, UsageError

_POLL = 0.1  # seconds between looks at a lock that is waited for
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_MOST_BYTES = 4096  # of what a holder writes about itself
_COMMAND = 200  # characters of the command that are kept


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a device. `since` is in seconds since the epoch."""

    pid: int
    command: str
    host: str
    since: float

    @classmethod
    def this_process(cls, what: str = "") -> Owner:
        """This process, for the purpose `what`."""
        command = what or " ".join(sys.argv)
        return cls(os.getpid(), command[:_COMMAND], socket.gethostname(), time.time())

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host} ({self.command}), since {since}"


@contextlib.contextmanager
def acquire(
    device: str, owner: Owner | None = None, *, wait: float = 0.0, folder: Path | None = None
) -> Iterator[Owner]:
    """Hold `device` until the context ends, waiting at most `wait` seconds for another holder to let go.

    Raises DeviceBusy, naming the holder. The lease is the process's: a second one for the same device is refused too.
    """
    owner = owner or Owner.this_process()
    with _lock_file(device, folder) as file:
        _lock(file, device, time.monotonic() + wait)
        _write(file, owner)
        try:
            yield owner
        finally:
            file.truncate(0)  # and closing it drops the lock


def holder(device: str, folder: Path | None = None) -> Owner | None:
    """Who holds `device` now; None when nobody does."""
    with _lock_file(device, folder) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(file) or Owner(0, "unknown", socket.gethostname(), time.time())
    return None


def lease_folder() -> Path:
    """Where the locks of this machine lie: one place for all users, since a device is one for all of them.

    `$PILOTFISH_LEASES`, else `pilotfish-leases` in the system's folder for temporary files.
    """
    named = variable("PILOTFISH_LEASES")
    return Path(named) if named else Path(tempfile.gettempdir()) / "pilotfish-leases"


def _lock_file(device: str, folder: Path | None) -> IO[bytes]:
    if not _NAME.fullmatch(device):
        raise UsageError(f"{device!r} is no device's name; use letters, digits and _ . : - such as NV or CUDA:0")
    folder = folder or lease_folder()
    path = folder / f"{device.replace(':', '_')}.lease"
    try:
        _prepare(folder)
        descriptor = _open(path)
    except OSError as error:
        raise DeviceBusy(
            f"{device}: its lock {path} cannot be opened ({error.strerror}); name another folder with PILOTFISH_LEASES"
        ) from error
    return os.fdopen(descriptor, "r+b", buffering=0)


def _open(path: Path) -> int:
    """Never truncated by opening, since the holder's identity is in it, nor followed elsewhere by a planted link.

    Linux refuses O_CREAT on another user's file in such a folder, so what is there is opened as it is.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        return os.open(path, flags | os.O_CREAT, 0o666)


def _prepare(folder: Path) -> None:
    """Everybody may make locks in it, and nobody may remove another's."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(PermissionError):
            folder.chmod(0o1777)


def _lock(file: IO[bytes], device: str, until: float) -> None:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                by = _read(file) or "another process"
                raise DeviceBusy(f"{device} is held by {by}; end that process, or use another device") from None
        time.sleep(_POLL)


def _write(file: IO[bytes], owner: Owner) -> None:
    with contextlib.suppress(OSError):
        os.fchmod(file.fileno(), 0o666)  # whatever the umask: other users' processes lock it as well
    with contextlib.suppress(OSError):  # on a full disk the lease holds without a name
        file.seek(0)
        file.truncate(0)
        file.write(json.dumps(asdict(owner)).encode())


def _read(file: IO[bytes]) -> Owner | None:
    """What the holder wrote; None when that cannot be read (it has locked and not written yet)."""
    try:
        file.seek(0)
        said = json.loads(file.read(_MOST_BYTES))
        owner = Owner(int(said["pid"]), str(said["command"]), str(said["host"]), float(said["since"]))
        str(owner)  # anybody may write to the file, and not every number is a time that can be shown
        return owner
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
