"""A deterministic target with a tiny vocabulary that checks how it is used.

The "model": the candidates for the next token are a hash of the last three ids, so that outputs wander and repeat
like text does. With a script, the output is the script instead. Sampling is greedy, or draws one number per picked
row from a generator seeded by the request, and skips a token that was picked twice in a row, so that a sampler
state that is off by one shows.
"""

from __future__ import annotations

import hashlib
import random
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

from pilotfish.hooks.errors import ContextOverflow, EngineError, ProtocolViolation
from pilotfish.hooks.hidden import HiddenShape, HiddenStates
from pilotfish.hooks.history import History
from pilotfish.hooks.types import (
    Ack,
    EnginePin,
    Lane,
    SamplingParams,
    TargetPin,
    TokenizerPin,
    TokenLogprob,
    WeightPin,
    in_blocks,
    shared_prefix,
)

EOS = 1
BLOCK = 8  # prompt tokens per prefill block


def fake_pin(n_vocab: int = 32) -> TargetPin:
    """A pin for the fake engine."""
    weights = (WeightPin("sha256:" + "0" * 64, Path("/nowhere/fake.gguf"), 0),)
    return TargetPin("fake:latest", weights, TokenizerPin("fake-tokenizer", "fake", n_vocab, eos=EOS))


class FakeTokenizer:
    """Ids as text: `pieces` where given, else the id and a space. End tokens are empty."""

    def __init__(self, pieces: dict[int, bytes], eog: frozenset[int]) -> None:
        self._pieces = pieces
        self._eog = eog

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        return [int(word) for word in text.split()]

    def piece(self, token: int, *, special: bool = False) -> bytes:
        if token in self._eog and not special:
            return b""
        return self._pieces.get(token, b"%d " % token)

    def decode(self, tokens: Sequence[int], *, special: bool = True) -> bytes:
        return b"".join(self.piece(token, special=special) for token in tokens)


def fake_activation(token: int, position: int, layer: int) -> float:
    """What every number of an activation is: exact in float32, and another one for each token, position and layer."""
    return float(token + 100 * layer + position / 1024)


class FakeEngine:
    """A TargetEngine. `on_forward(width)` is called for every forward: a place to advance a clock or to raise.

    With `going_back` it takes blocks back, which `on_back` is called for, and forwards what is committed again. With
    `hidden` its sessions tell activations: see `fake_activation`.
    """

    def __init__(
        self,
        *,
        n_vocab: int = 32,
        n_ctx: int = 512,
        widths: Sequence[int] = tuple(range(1, 17)),
        script: Sequence[int] | None = None,
        pieces: dict[int, bytes] | None = None,
        eog: frozenset[int] = frozenset({EOS}),
        noise: bool = False,
        shifts: bool = True,
        refeeds: bool = False,
        slots: int = 1,
        joins: int = 1,
        on_forward: Callable[[int], None] = lambda width: None,
        going_back: float | None = None,
        on_back: Callable[[], None] = lambda: None,
        hidden: HiddenShape | None = None,
    ) -> None:
        self.hidden_shape = hidden
        self.going_back, self.on_back = going_back, on_back
        self.lane = Lane("fake", tuple(widths))
        self.engine = EnginePin("fake", "1", "fake")
        self.n_ctx = n_ctx
        self.n_vocab = n_vocab
        self.eog = eog
        self.tokenizer = FakeTokenizer(pieces or {}, eog)
        self.script = script
        self.shifts = shifts  # its cache can forget tokens in its middle,
        self.refeeds = refeeds  # and has what is left fed again
        self.slots = slots
        self.joins = joins  # tokens that a forward of several sessions may have
        self.noise = noise  # rows depend on the width of the forward, as real kernels' do outside a lane
        self.on_forward = on_forward
        self.widths: list[int] = []  # of every forward since the engine was made, that of several sessions in all
        self.again: list[int] = []  # committed tokens of every block that was taken back
        self.lie_at: int | None = None  # acknowledge a wrong history from this round on
        self.open_sessions = 0
        self.shifts_done: list[tuple[int, ...]] = []  # of each session: cells held, kept and lost, time after time
        self.uncommitted: set[FakeSession] = set()  # whose forward is the last one, and neither kept nor taken back
        self._caches: list[list[int] | None] = [[] for _ in range(slots)]  # None while a session is open

    def open(
        self, prompt: Sequence[int], sampling: SamplingParams, *, cache_prompt: bool = True, slot: int | None = None
    ) -> FakeSession:
        if len(prompt) >= self.n_ctx:
            raise ContextOverflow(len(prompt), self.n_ctx)
        free = [i for i, cache in enumerate(self._caches) if cache is not None and slot in (i, None)]
        if not free:
            raise ProtocolViolation("the slot is taken")
        best = max(free, key=lambda i: shared_prefix(self._caches[i] or (), prompt))
        kept, self._caches[best] = self._caches[best] or [], None
        cached = min(shared_prefix(kept, prompt), len(prompt) - 1) if cache_prompt else 0
        self.open_sessions += 1
        return FakeSession(self, best, prompt, sampling, cached)

    def close(self) -> None:
        self._caches = [[] for _ in self._caches]

    def take_back(self, committed: int, width: int) -> None:
        """Of a forward of `width` tokens so many are committed."""
        if self.going_back is None or committed == width:
            return
        self.again.append(committed)
        self.on_back()
        for block in in_blocks(committed, self.lane.widths):
            self.on_forward(block)

    def keep(self, slot_id: int, tokens: Sequence[int]) -> None:
        self._caches[slot_id] = list(tokens)
        self.open_sessions -= 1

    def together(self, width: int) -> int:
        return max(1, min(self.slots, self.joins // width))

    def verify_together(self, wishes: Sequence[tuple[FakeSession, Sequence[int]]]) -> list[FakeRows]:
        width = self.lane.pad(max(1 + len(proposals) for _, proposals in wishes))
        if len(wishes) > self.together(width):
            raise ProtocolViolation(f"{len(wishes)} sessions of width {width} at once")
        for session, proposals in wishes:
            session.check(proposals)
        self.widths.append(width * len(wishes))
        self.on_forward(width * len(wishes))
        return [session.verified(proposals, width * len(wishes)) for session, proposals in wishes]

    def candidates(self, history: Sequence[int], width: int, forgotten: Sequence[int] = ()) -> list[int]:
        """The possible next tokens after `history`, likeliest first; others once something was `forgotten`."""
        context = ",".join(map(str, (*history[-3:], *forgotten))) + (f"/{width}" if self.noise else "")
        digest = hashlib.blake2b(context.encode(), digest_size=8).digest()
        return [byte % self.n_vocab for byte in digest]


class FakeSession:
    """A TargetSession that raises ProtocolViolation when it is misused."""

    def __init__(
        self, engine: FakeEngine, slot_id: int, prompt: Sequence[int], sampling: SamplingParams, cached: int
    ) -> None:
        self.slot_id = slot_id
        self.cached = cached
        self.history = History(prompt)
        self.cells = list(prompt[:cached])  # what the cache holds
        self.forgotten: tuple[int, ...] = ()  # what the cache held when it forgot, and what it kept and lost
        self._kept = array("i", prompt)  # the history without what the cache has forgotten
        self._prompt = len(prompt)
        self._engine = engine
        self._greedy = sampling.temperature <= 0
        self._random = random.Random(sampling.seed)
        self._picked: list[int] = []
        self._hidden_layers: set[int] = set()
        self._computed: list[int] = []  # tokens whose activations are kept, from position `cached` on
        self._rows: FakeRows | None = None
        self._closed = False

    def prefill(self) -> int:
        end = len(self._kept) - 1
        block = self._kept[len(self.cells) : min(end, len(self.cells) + BLOCK)]
        if block:
            self._check_turn()
            self._engine.on_forward(len(block))
        self.cells.extend(block)
        if not self.forgotten:  # else it is computed again
            self._computed.extend(block)
        return end - len(self.cells)

    def verify(self, proposals: Sequence[int]) -> FakeRows:
        self.check(proposals)
        width = self._engine.lane.pad(1 + len(proposals))
        self._engine.widths.append(width)
        self._engine.on_forward(width)
        return self.verified(proposals, width)

    def check(self, proposals: Sequence[int]) -> None:
        """Raise unless a forward may come now."""
        if self._closed or self._rows is not None or len(self.cells) != len(self._kept) - 1:
            raise ProtocolViolation("verify out of turn")
        if any(not 0 <= token < self._engine.n_vocab for token in proposals):
            raise ProtocolViolation("a proposal outside the vocabulary reached the engine")
        if len(self.cells) + 1 + len(proposals) > self._engine.n_ctx:
            raise EngineError("the context is full")
        self._check_turn()

    def verified(self, proposals: Sequence[int], width: int) -> FakeRows:
        """The rows of a forward of `width` tokens, those of other sessions included."""
        self._engine.uncommitted.add(self)
        self._rows = FakeRows(self, tuple(proposals), width)
        return self._rows

    def _check_turn(self) -> None:
        if self._engine.uncommitted:
            raise ProtocolViolation("a forward, but another session has not committed its own")

    def draw(self, history: Sequence[int], width: int) -> int:
        if self._engine.script is not None:
            at = len(history) - self._prompt
            return self._engine.script[at] if at < len(self._engine.script) else EOS
        candidates = self._engine.candidates(history, width, self.forgotten)
        choice = 0 if self._greedy else self._random.randrange(4)
        if self._picked[-2:] == [candidates[choice]] * 2:
            choice += 1
        return candidates[choice]

    def advance(self, token: int) -> None:
        self._picked.append(token)

    def commit(self, tokens: Sequence[int]) -> Ack:
        if self._rows is None or list(tokens) != self._rows.picks or not tokens:
            raise ProtocolViolation(f"commit of {list(tokens)}, but the picks are {self._rows and self._rows.picks}")
        self._engine.take_back(len(tokens), self._rows.width)
        self._forget()
        self._computed += [self._kept[-1], *tokens[:-1]]
        self.cells = [*self._kept, *tokens[:-1]]
        self._kept.extend(tokens)
        ack = self.history.commit(tokens)
        if self._engine.lie_at is not None and ack.round >= self._engine.lie_at:
            return Ack(ack.round, ack.position, "0" * 32)
        return ack

    def rollback(self) -> Ack:
        self._forget()
        return self.history.ack()

    @property
    def can_shift(self) -> bool:
        return self._engine.shifts

    def shift(self, keep: int, discard: int) -> None:
        if self._closed or self._rows is not None or len(self.cells) != len(self._kept) - 1:
            raise ProtocolViolation("shift out of turn")
        if not 0 <= keep < keep + discard < len(self.cells):
            raise ProtocolViolation(f"{discard} tokens behind {keep} cannot go from {len(self.cells)} cells")
        self.forgotten += (len(self.cells), keep, discard)
        del self._kept[keep : keep + discard]
        self.cells = [] if self._engine.refeeds else list(self._kept[:-1])

    def keep_hidden(self, layers: Sequence[int]) -> None:
        shape = self._engine.hidden_shape
        if shape is None or self._computed or not all(0 <= layer <= shape.layers for layer in layers):
            raise ProtocolViolation(f"layers {list(layers)} were asked for out of turn, or are not there")
        self._hidden_layers.update(layers)

    def hidden(self, layers: Sequence[int], since: int) -> HiddenStates:
        shape = self._engine.hidden_shape
        if shape is None or self._rows is not None or not self._hidden_layers.issuperset(layers):
            raise ProtocolViolation("activations out of turn, or of layers that nobody had kept")
        first = max(since, self.cached)
        tokens = self._computed[first - self.cached :]
        numbers = array("f")
        for i, token in enumerate(tokens):
            for layer in layers:
                numbers.extend([fake_activation(token, first + i, layer)] * shape.width)
        return HiddenStates(first, len(tokens), tuple(layers), shape.width, numbers.tobytes())

    def close(self) -> None:
        if self._closed:
            raise ProtocolViolation("closed twice")
        self._closed = True
        self._engine.shifts_done.append(self.forgotten)
        self._forget()
        self._engine.keep(self.slot_id, [] if self.forgotten else self.cells)

    def _forget(self) -> None:
        self._rows = None
        self._engine.uncommitted.discard(self)


class FakeRows:
    """Rows of one forward."""

    def __init__(self, session: FakeSession, proposals: tuple[int, ...], width: int) -> None:
        self.picks: list[int] = []
        self._session = session
        self._proposals = proposals
        self.width = width

    def __len__(self) -> int:
        return 1 + len(self._proposals)

    def pick(self, i: int) -> int:
        if i != len(self.picks) or i > len(self._proposals) or tuple(self.picks) != self._proposals[:i]:
            raise ProtocolViolation(f"row {i} picked out of turn after {self.picks}")
        history = [*self._session.history.tokens, *self._proposals[:i]]
        token = self._session.draw(history, self.width)
        self._session.advance(token)
        self.picks.append(token)
        return token

    def logprobs(self, i: int, token: int, n: int) -> TokenLogprob:
        return TokenLogprob(token, -1.0, b"?")
