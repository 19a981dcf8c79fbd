"""Random committed histories and suggestions, and what must hold of a bridge whatever they are."""

from __future__ import annotations

import codecs
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from pilotfish.hooks.protocols import Bridge, Vocabulary
from pilotfish.hooks.types import Proposal
from pilotfish.plugins.bridges._cutting import is_bytes

TEXTS = (
    "The quick brown fox doesn't jump over 1,234 lazy dogs; it unbelievably sleeps.\n\nWhy? Nobody knows...\n",
    "def add(a: int, b: int) -> int:\n    # sums\n    return a + b\n\n\n\tif x != y:\r\n\t\tprint(f'{x!r:>10}')\n",
    "Größe, naïveté, Ærøskøbing, crème brûlée, señor, İstanbul, Łódź — “quoted” … ½ ² €5\n",
    "今天天气很好，我们打算下午去公园散步。これは短い例です。안녕하세요, 만나서 반갑습니다.",
    "Сегодня хорошая погода. مرحبا بالعالم שלום ไทย हिन्दी ελληνικά",
    "😀👍🏽👨‍👩‍👧‍👦🇩🇪 ok 🤷‍♂️!! ❤️\u200d🔥 \U0001f9d1\u200d💻",
    '{"a": [1, 2.50, null], "b": {"c": "\\u00e9"}}   \t  <br/> https://x.example/?q=1&r=%20',
    "aaaaaaaaaaaaaaaa          bbbb\n\n\n\n\n======== ________ <|im_end|> <s> [INST] \u0000\u0001",
)
BROKEN = (b"\xf0\x9f", b"\x98\x80", b"\xff", b"\xc3", b"\xe2\x80", b"\x80\x80", b"\xed\xa0\x80", b"\xc0\xaf")


@dataclass
class Maker:
    """Random ids of a vocabulary. `singles` are its ids of single bytes, which spell what is no text."""

    vocabulary: Vocabulary
    specials: Sequence[int] = field(init=False)
    singles: dict[bytes, int] = field(init=False)

    def __post_init__(self) -> None:
        every = range(self.vocabulary.pin.n_vocab)
        self.specials = [i for i in every if self.vocabulary.special(i)]
        self.singles = {}
        for i in every:
            piece = self.vocabulary.piece(i)
            if len(piece) == 1 and not self.vocabulary.special(i):
                self.singles.setdefault(piece, i)

    def ids(self, rng: random.Random, text: str) -> list[int]:
        """`text` cut at random places, each part encoded alone: rarely as its tokenizer would cut the whole."""
        places = sorted(rng.sample(range(len(text) + 1), min(len(text), rng.randrange(6))))
        parts = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
        return [token for part in parts for token in self.vocabulary.encode(part)]

    def disturbance(self, rng: random.Random) -> list[int]:
        """Broken bytes, a special token, or any id at all."""
        kind = rng.randrange(3)
        if kind == 0:
            return [self.singles[bytes((b,))] for b in rng.choice(BROKEN) if bytes((b,)) in self.singles]
        if kind == 1 and self.specials:
            return [rng.choice(self.specials)]
        return [rng.randrange(self.vocabulary.pin.n_vocab)]


class Session:
    """A bridge, and an account of what it was given and gave."""

    def __init__(self, bridge: Bridge, drafter: Vocabulary, target: Vocabulary) -> None:
        self.bridge, self.drafter, self.target = bridge, drafter, target
        self.committed: list[int] = []
        self.given: list[int] = []

    def commit(self, ids: Sequence[int]) -> None:
        before = list(ids)
        given = list(self.bridge.to_drafter(ids))
        assert list(ids) == before, "the bridge changed its input"
        assert all(0 <= token < self.drafter.pin.n_vocab for token in given)
        self.committed += ids
        self.given += given

    @property
    def held(self) -> bytes | None:
        """The committed text that the drafter was not given, checked to be all that is missing.

        None when the drafter cannot spell what was committed, so that nothing can be compared.
        """
        if is_bytes(self.drafter):
            assert bytes(self.given) == _spelt(self.target, self.committed)
            return b""
        texts = _texts(self.target, self.committed)
        whole = "".join(text for text, _ in texts)
        given = "".join(text for text, _ in _texts(self.drafter, self.given)).encode()
        if not whole.encode().startswith(given):
            assert not _spells(self.drafter, whole), f"the drafter was told {given!r}, not {whole!r}"
            return None
        return whole.encode()[len(given) :] + texts[-1][1]

    def suggest(self, proposal: Proposal) -> Proposal:
        """The target's proposal, checked to continue the committed ids with what was suggested."""
        committed = list(self.committed)
        found = self.bridge.to_target(proposal)
        assert self.committed == committed
        assert all(0 <= token < self.target.pin.n_vocab for token in found.tokens)
        assert len(found.confidence) <= len(found.tokens)
        assert found == self.bridge.to_target(proposal), "asking changed the answer"
        self._check_bytes(proposal, found)
        return found

    def _check_bytes(self, proposal: Proposal, found: Proposal) -> None:
        said = b""
        for token in proposal.tokens:
            if type(token) is not int or not 0 <= token < self.drafter.pin.n_vocab or self.drafter.special(token):
                break
            said += self.drafter.piece(token)
        text = _spelt(self.target, found.tokens)
        held = self.held
        if found.tokens and held is not None:
            assert said.startswith(held + text), f"{text!r} was not suggested by {said!r} after {held!r}"


def _spelt(vocabulary: Vocabulary, ids: Sequence[int]) -> bytes:
    return b"".join(vocabulary.piece(token) for token in ids if not vocabulary.special(token))


def _spells(vocabulary: Vocabulary, text: str) -> bool:
    return _spelt(vocabulary, vocabulary.encode(text)).endswith(text.encode())


def _texts(vocabulary: Vocabulary, ids: Sequence[int]) -> list[tuple[str, bytes]]:
    """The text between special tokens, without broken bytes; with each the beginning of a character at its end."""
    texts, data = [], b""
    for token in ids:
        if vocabulary.special(token):
            texts.append(data)
            data = b""
        else:
            data += vocabulary.piece(token)
    return [_text(data) for data in [*texts, data]]


def _text(data: bytes) -> tuple[str, bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    return decoder.decode(data), decoder.getstate()[0]
