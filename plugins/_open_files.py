"""The process's limit of open files, while mlx-lm is imported.

mlx-lm sets it to 2048, and the hard limit to 4096, which only root could put back: a server that may have 20,000
connections would have lost them. What it is after is that a small limit grows.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def open_files_kept() -> Iterator[None]:
    """Inside, the limit of open files can grow as far as the hard one lets it, and nothing makes it smaller."""
    set_limit = resource.setrlimit

    def set_kept(kind: int, limits: tuple[int, int], /) -> None:
        set_limit(kind, _grown(limits[0]) if kind == resource.RLIMIT_NOFILE else limits)

    resource.setrlimit = set_kept
    try:
        yield
    finally:
        resource.setrlimit = set_limit


def _grown(wanted: int) -> tuple[int, int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY in (soft, wanted):
        return soft, hard
    least = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    return max(soft, least), hard
