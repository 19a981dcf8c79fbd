"""Where the control socket lies, and how a daemon comes to own it.

A daemon holds a lock on a file beside its socket for as long as it lives; the kernel drops the lock when the process
dies, however it dies. Neither the lock file's existence nor a pid written anywhere says that a daemon runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from pilotfish.daemon.config.types import Config
from pilotfish.hooks.environment import variable
from pilotfish.hooks.errors import ConfigError

SOCKET_NAME = "pilotfish.sock"
MAX_PATH = 103 if sys.platform == "darwin" else 107  # bytes in sockaddr_un.sun_path, less the final zero
_KNOCK = 1.0  # seconds for a listener to accept
_REMEDY = "name another one with PILOTFISH_SOCKET or [daemon] socket"


def socket_path(config: Config) -> Path:
    """`$PILOTFISH_SOCKET`, else the config's, else `pilotfish.sock` in the platform's runtime folder.

    Raises ConfigError when the path is longer than a Unix socket's may be.
    """
    named = variable("PILOTFISH_SOCKET")
    path = (Path(named) if named else config.daemon.socket or _runtime_dir() / SOCKET_NAME).absolute()
    length = len(os.fsencode(path))
    if length > MAX_PATH:
        raise ConfigError(f"{path}: {length} bytes are too long for a Unix socket, {MAX_PATH} fit; {_REMEDY}")
    return path


def is_ours(path: Path) -> bool:
    """Whether there is a socket at `path` that this user or root made: nobody else's is to be talked to."""
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISSOCK(status.st_mode) and status.st_uid in {os.geteuid(), 0}


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[socket.socket | None]:
    """A listening socket at `path`, mode 0600, removed at the end; None when a live daemon has it.

    What a dead one left is replaced. Raises ConfigError when something else is in the way.
    """
    with contextlib.ExitStack() as cleanup:
        try:
            _prepare_folder(path.parent)
            lock = cleanup.enter_context(path.with_name(f"{path.name}.lock").open("a"))
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}: {error.filename}; {_REMEDY}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        if _answers(path):
            yield None
            return
        _remove_stale(path)
        listening = cleanup.enter_context(_listen(path))
        mine = path.stat().st_ino
        try:
            yield listening
        finally:
            with contextlib.suppress(OSError):
                if path.stat().st_ino == mine:
                    path.unlink()


def _runtime_dir() -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that $XDG_RUNTIME_DIR is unset is no news to anyone here
        try:
            return Path(platformdirs.user_runtime_dir("pilotfish"))
        except (PermissionError, RuntimeError) as error:  # RuntimeError: this user has no home folder
            raise ConfigError(f"control socket: {error}, or {_REMEDY}") from error


def _prepare_folder(folder: Path) -> None:
    """Make it, 0700, or refuse one into which others could put a socket of theirs."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat()
    if status.st_uid not in {os.geteuid(), 0}:
        whose = f"belongs to another user (uid {status.st_uid})"
        raise ConfigError(f"{folder}: {whose}, so no socket is made there; {_REMEDY}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
        raise ConfigError(f"{folder}: others may write to it, so no socket is made there; run: chmod go-w '{folder}'")
    if status.st_mode & 0o077 and folder == _runtime_dir():
        folder.chmod(0o700)


def _answers(path: Path) -> bool:
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.settimeout(_KNOCK)
        try:
            probe.connect(str(path))
        except (TimeoutError, BlockingIOError):
            return True  # somebody holds it, busy as they may be
        except OSError:
            return False
        return True


def _remove_stale(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigError(f"{path}: is there and no socket; move it away, or {_REMEDY}")
        path.unlink()


def _listen(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # 0600 from the first moment on; nothing else runs yet that could make a file
    try:
        listening.bind(str(path))
    except OSError as error:
        listening.close()
        raise ConfigError(f"{path}: cannot be made: {error.strerror}; {_REMEDY}") from error
    finally:
        os.umask(before)
    listening.listen(64)
    listening.setblocking(False)
    return listening
