"""The head of an HTTP/1 request as it came: enough of it to say whom it is for, and to hand it on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_END = re.compile(rb"\r?\n\r?\n")
_LINE_END = re.compile(rb"\r?\n(?![ \t])")  # a line that begins with a space goes on with the one before
_PERSISTENCE = (b"connection", b"keep-alive", b"proxy-connection")  # what belongs to one connection
_AUTHORITY = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)  # of the whole URL that a proxy is asked for
_PLAIN_FIRST = re.compile(rb"[A-Za-z]+ [!-~]+ HTTP/1\.[01]")
_PLAIN_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*")


def end_of_head(data: bytes | bytearray, start: int = 0) -> int | None:
    """How many bytes the head in `data` has, its empty line included; None while it is not complete.

    Nothing before `start` is looked at, but for the few bytes by which the end may reach back.
    """
    found = _END.search(data, max(0, start - 3))
    return found.end() if found else None


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request's first line and its header lines, byte for byte. What is no HTTP has an empty method."""

    first: bytes
    lines: tuple[bytes, ...]  # without their ends
    size: int  # bytes, the empty line included

    @classmethod
    def parse(cls, head: bytes) -> RequestHead:
        """The parts of a complete head."""
        first, *lines = _LINE_END.split(head.rstrip(b"\r\n"))
        return cls(first, tuple(lines), len(head))

    @property
    def method(self) -> str:
        """As it was written, which matters."""
        return self._word(0)

    @property
    def path(self) -> str:
        """What is asked for, without its query; undecoded."""
        target = self._word(1)
        whole = _AUTHORITY.match(target)
        return (target[whole.end() :] if whole else target).partition("?")[0]

    @property
    def hosts(self) -> list[str]:
        """Every name that it gives the server: in `Host` lines, and where it asks for a whole URL."""
        whole = _AUTHORITY.match(self._word(1))
        return [*self.values("Host"), *([whole[1].rpartition("@")[2]] if whole else [])]

    @property
    def is_plain(self) -> bool:
        """Whether every server reads it alike, and no body is compressed: nothing folded, no line end but CRLF, and
        one way at most to tell where the body ends."""
        lengths, codings = self.values("Content-Length"), self.values("Transfer-Encoding")
        if len(lengths) + len(codings) > 1 or self.values("Content-Encoding"):
            return False
        if not all(re.fullmatch("[0-9]+", length) for length in lengths) or codings not in ([], ["chunked"]):
            return False
        by_crlf = self.size == len(self.first) + sum(len(line) + 2 for line in self.lines) + 4
        return by_crlf and bool(_PLAIN_FIRST.fullmatch(self.first)) and all(map(_PLAIN_LINE.fullmatch, self.lines))

    @property
    def version(self) -> str:
        """`HTTP/1.1`, say."""
        return self._word(2)

    def values(self, name: str) -> list[str]:
        """What the header lines of this name say."""
        wanted = name.lower().encode()
        return [line.partition(b":")[2].strip().decode("latin-1") for line in self.lines if _name(line) == wanted]

    def single(self, name: str) -> str:
        """The first value under this name; empty where there is none."""
        return next(iter(self.values(name)), "")

    def handed_on(self, added: Sequence[str] = (), *, without: Sequence[str] = ()) -> bytes:
        """The head for the next server, to which it is the only request of a connection.

        Every line is as it was but for those of this connection, and those under the names in `without`. What
        `Connection` says besides how long it lasts is kept: it stays true, because what comes after the head is handed
        on unread. `added` lines come last.
        """
        left_out = {*_PERSISTENCE, *(name.lower().encode() for name in without)}
        kept = [line for line in self.lines if _name(line) not in left_out]
        tokens = [*self._connection_options(), "close"]
        lines = [self.first, *kept, f"Connection: {', '.join(tokens)}".encode("latin-1")]
        return b"\r\n".join([*lines, *(line.encode("latin-1") for line in added), b"", b""])

    def _connection_options(self) -> list[str]:
        said = (word.strip() for value in self.values("connection") for word in value.split(","))
        return [word for word in said if word and word.lower() not in ("close", "keep-alive")]

    def _word(self, place: int) -> str:
        words = self.first.split()
        return words[place].decode("latin-1") if len(words) == 3 else ""


def _name(line: bytes) -> bytes:
    return line.partition(b":")[0].strip().lower()
