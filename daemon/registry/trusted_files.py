"""Opening a file that only this user, or root, can have written.

A check of a path followed by an open of the same path proves nothing: whoever may rename one of its folders changes
what it leads to in between. So a path is walked from the root, one name at a time and each below the folder that was
opened before; what is looked at is what was opened, and nothing is opened twice. A folder passes if it belongs to this
user or to root and nobody else can write to it. One in which everybody may make files but nobody may rename another's
(sticky, as `/tmp` is) passes on the way too, since the entry taken from it must be ours as well, but not as the folder
that holds the file: others could add files to it.

Links are followed by hand, under the same rules: a link counts as an entry of its folder, and the path it holds is
walked in its turn. A plugin folder in a user's dotfiles works; one behind a link that somebody else can turn does not.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from pilotfish.hooks.errors import ConfigError

MAX_LINKS = 40  # as Linux follows in one path
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
# A folder that may be searched but not listed (0711) is passed through: for that Linux has descriptors without reading.
_PASSING = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe of that name must not be waited for


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor of the file `path`, open for reading until the block ends.

    Raises ConfigError, naming the folder or file that others can change, and OSError when it cannot be opened.
    """
    with contextlib.ExitStack() as stack:
        walk = _Walk(path, stack)
        name = walk.to_file()
        file = os.open(name, _READING, dir_fd=walk.folder)
        stack.callback(os.close, file)
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{walk.place / name}: is no file, so it is not loaded; move it away")
        _check(status, walk.place / name, holds_file=True)
        yield file


def read(path: Path) -> bytes:
    """What the file `path` holds. Raises as `opened` does."""
    with opened(path) as file, os.fdopen(file, "rb", closefd=False) as stream:
        return stream.read()


class _Walk:
    """On the way from the root to a file. `folder` is the open folder that was reached, `place` its path for a person;
    `stack` closes what was opened."""

    def __init__(self, path: Path, stack: contextlib.ExitStack) -> None:
        self._path = path
        self._stack = stack
        self._links = 0
        self._todo: list[str] = []  # names, the next one last
        self.folder, self.place = -1, Path("/")
        self._take_up(path.absolute())

    def to_file(self) -> str:
        """Walk until only the file is left, and return its name in `folder`."""
        while self._todo:
            name = self._todo.pop()
            entry = os.stat(name, dir_fd=self.folder, follow_symlinks=False)
            if not self._todo:
                _check(os.fstat(self.folder), self.place, holds_file=True)
            if stat.S_ISLNK(entry.st_mode):
                self._follow(name, entry)
            elif self._todo:
                self._enter(name, self.folder)
            else:
                return name
        raise ConfigError(f"{self._path}: is no file; name one")

    def _follow(self, name: str, link: os.stat_result) -> None:
        self._links += 1
        if self._links > MAX_LINKS:
            raise ConfigError(f"{self._path}: more than {MAX_LINKS} links lead to it; name the file itself")
        _check_owner(link, self.place / name)
        self._take_up(Path(os.readlink(name, dir_fd=self.folder)))

    def _take_up(self, path: Path) -> None:
        """Go along `path` before anything else."""
        if path.is_absolute():
            self.place = Path("/")
            self._enter("/", None)
        self._todo += reversed(path.parts[1:] if path.is_absolute() else path.parts)

    def _enter(self, name: str, folder: int | None) -> None:
        entered = os.open(name, _PASSING, dir_fd=folder)
        self._stack.callback(os.close, entered)
        self.folder, self.place = entered, self.place / name
        _check(os.fstat(entered), self.place, holds_file=False)


def _check(status: os.stat_result, place: Path, *, holds_file: bool) -> None:
    _check_owner(status, place)
    passing = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX and not holds_file
    if status.st_mode & _OTHERS_MAY_WRITE and not passing:
        _refuse(place, "others may write to it", f"run: chmod go-w '{place}'")


def _check_owner(status: os.stat_result, place: Path) -> None:
    if status.st_uid not in {os.geteuid(), 0}:
        whose = f"belongs to another user (uid {status.st_uid})"
        _refuse(place, whose, f"copy it, or run: chown -h {os.geteuid()} '{place}'")


def _refuse(place: Path, why: str, remedy: str) -> NoReturn:
    raise ConfigError(f"{place}: {why}, so nothing is loaded from it; {remedy}")
