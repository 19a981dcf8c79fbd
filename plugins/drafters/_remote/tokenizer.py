"""Shows that a server's ids stand for the same bytes as the target's.

The target's ids are read from its GGUF. The server is asked for the text of all of them, many at a time: two
vocabularies that agree on every id of ordinary text mean the same by it, and that is all that drafting needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pilotfish.hooks.errors import BrokenModel
from pilotfish.hooks.types import TargetPin
from pilotfish.plugins._byte_letters import BYTE_OF
from pilotfish.plugins.drafters._remote.pieces import read_pieces

AT_ONCE = 1000  # ids per question
NORMAL = 1  # GGUF's type of ordinary tokens; the others are shown differently by different servers
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # what sentencepiece writes for a space

Detokenize = Callable[[Sequence[int]], str | None]


def difference(detokenize: Detokenize, target: TargetPin) -> str:
    """Why the server's ids cannot be taken for the target's; empty when they can."""
    if target.format != "gguf" or not target.weights or not target.path.is_file():
        return f"{target.name} is no GGUF file that could be compared with"
    try:
        texts = dict(ordinary_tokens(target.path))
    except (BrokenModel, ValueError) as error:
        return f"the tokenizer of {target.path} cannot be read ({error})"
    ids = sorted(texts)
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        said = detokenize(some)
        if said is None:
            return "it does not detokenize"
        if said != "".join(texts[token] for token in some):
            return f"its tokenizer is not that of {target.name}"
    return "" if ids else f"{target.path} names no ordinary token"


def ordinary_tokens(path: Path) -> Iterator[tuple[int, str]]:
    """(id, text) of the tokens of ordinary text whose bytes are whole characters."""
    pieces = read_pieces(path)
    for token, (piece, type_) in enumerate(zip(pieces.texts, pieces.types, strict=True)):
        if type_ == NORMAL and (text := _text(piece, pieces.kind)):
            yield token, text


def _text(piece: str, kind: str) -> str:
    """The text of a piece as the file writes it; empty when it is no whole character."""
    if kind != "gpt2":
        return piece.replace(_SPACE, " ")
    try:
        return bytes(BYTE_OF[letter] for letter in piece).decode()
    except (KeyError, UnicodeDecodeError):
        return ""
