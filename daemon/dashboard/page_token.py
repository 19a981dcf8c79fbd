"""Who may change things and read answers on the page: whoever has the token, which lies in the state folder.

`pilotfish open` asks for a code over the control socket, which only its owner can open. The code is good for one minute
and one use; a browser trades it for a cookie, so that the token itself stands in no address. A browser that is started
has the code on its command line, which all users of a machine can read: such a code is good for one user alone.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("pilotfish.dashboard")

FILE_NAME = "page-token"
COOKIE = "pilotfish_page"
HEADER = "X-Pilotfish-Token"
CODE_SECONDS = 60.0
ROOT = 0
_MOST_CODES = 16


class PageToken:
    """Made once for a daemon. A state folder that cannot be written gives a token that ends with the process."""

    def __init__(self, state_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.value = _kept(state_dir / FILE_NAME)
        self._clock = clock
        self._codes: dict[str, tuple[float, int | None]] = {}  # until when each is good, and for which user

    def matches(self, given: str | None) -> bool:
        """Whether this is the token."""
        return given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), self.value.encode())

    def code(self, user: int | None = None) -> str:
        """A new code; with a `user`, no other one of this machine's can redeem it, but for root."""
        while len(self._codes) >= _MOST_CODES:
            self._codes.pop(next(iter(self._codes)))
        code = secrets.token_urlsafe(24)
        self._codes[code] = (self._clock() + CODE_SECONDS, user)
        return code

    def redeem(self, code: str, by: int | None = None) -> bool:
        """Whether a code is good; it is not any more afterwards. `by` is the user who asks, as far as that is known.

        Another user than the code's does not use it up.
        """
        until, user = self._codes.get(code, (0.0, None))
        if user is not None and by not in (user, ROOT, None):
            return False
        return self._codes.pop(code, None) is not None and self._clock() < until


def _kept(path: Path) -> str:
    """The token of the last daemon, or a new one, in a file for its owner alone."""
    try:
        if path.stat().st_mode & 0o077 == 0 and len(found := path.read_text().strip()) >= 32:
            return found
    except OSError:
        pass
    token = secrets.token_urlsafe(32)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token)
    except OSError as error:
        log.warning("%s cannot be written (%s): the page's token ends with this process", path, error.strerror)
    return token
