"""An engine below the sessions: raw forwards, each row reduced to a digest of its bits, for certification."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from pilotfish.hooks.inspection import CellsPart, Trace
from pilotfish.hooks.types import EngineOptions, EnginePin, EngineSetting, JointStep, TargetPin
from pilotfish.plugins._cells.context import CellContext, digest_of
from pilotfish.plugins._cells.dialect import Dialect, Model
from pilotfish.plugins._cells.forward_watch import ForwardWatch
from pilotfish.plugins._cells.joint_price import CELLS, DEPTH, joint_step
from pilotfish.plugins._cells.watched_context import WatchedContext


class CellProbe:
    """A `Probe` that `TellsEdges`, `RestoresStates`, `InspectsForwards` and `LooksDeeper`.

    `close` frees the model; a second call does nothing. `options` are what `setting` was loaded with.
    """

    def __init__(
        self,
        model: Model,
        context: CellContext,
        engine: EnginePin,
        obstacle: str,
        setting: EngineSetting,
        options: EngineOptions,
        *,
        experts: bool = False,
    ) -> None:
        self._model, self._context, self._setting, self._options = model, context, setting, options
        self.edges, self.experts = context.memory.places, experts
        self.prompts_apart = model.prompts_apart(setting, lambda: 0) is not None
        self.engine = engine
        self.obstacle = obstacle
        self.n_ctx = min(context.cells, model.n_ctx_train)
        self.n_vocab = self._model.tokenizer.n_vocab
        self.seconds = 0.0
        self._forwarded: list[int] = []  # the tokens of the last forward, padding included
        self._watched: tuple[CellContext, ForwardWatch] | None = None  # made once it is asked for

    @property
    def going_back(self) -> float | None:
        """Seconds that taking a block back takes at least; None where tails are cut."""
        return self._context.going_back

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without BOS."""
        return self._model.tokenizer.encode(text, add_special=False)

    def feed(self, tokens: Sequence[int]) -> None:
        """Forward `tokens` as one prompt block. Raises EngineError."""
        started = time.perf_counter()
        self._context.feed(tokens)
        self._context.wait()
        self.seconds = time.perf_counter() - started
        self._context.mark()

    def rows(self, tokens: Sequence[int], width: int) -> list[bytes]:
        """One forward padded to `width`; the digests of the tokens' rows. Raises EngineError."""
        self._forward(self._context, tokens, width)
        return [_digest(self._context, i) for i in range(len(tokens))]

    def logits(self, tokens: Sequence[int], width: int) -> bytes:
        """One forward padded to `width`; the tokens' rows as they are, float32. Raises EngineError."""
        self._forward(self._context, tokens, width)
        return b"".join(self._context.row(i).tobytes() for i in range(len(tokens)))

    def _forward(self, context: CellContext, tokens: Sequence[int], width: int) -> None:
        started = time.perf_counter()
        if width == 1:
            context.step(tokens[0])  # what a session's plain step runs
        else:
            context.forward(tokens, width)
        if context is self._context:
            self._forwarded = [*tokens, *[tokens[-1]] * (width - len(tokens))]
        context.row(0)  # waits for the computation where the device works on its own
        self.seconds = time.perf_counter() - started

    def trace(self, tokens: Sequence[int], width: int) -> Trace:
        """One forward padded to `width`, looked into, after a copy of the cells. Raises EngineError."""
        if self._watched is None:
            self._watched = self._model.watched(self._setting, self._options, self._context.max_width)
        context, watch = self._watched
        context.restore(self._context.state())
        watch.begin(width)
        try:
            self._forward(context, tokens, width)
        finally:
            operations = watch.end()
        return Trace(operations, tuple(_digest(context, i) for i in range(len(tokens))))

    def cells(self, since: int) -> tuple[CellsPart, ...]:
        """Digests of what the cells hold, one by one from `since` on where the state's form is known."""
        return self._context.parts(since)

    def look_deeper(self) -> None:
        """From now on digests of rows are of everything that was computed for the tokens. Raises EngineError."""
        context, watch = self._model.watched(self._setting, self._options, self._context.max_width)
        self._context.close()
        self._context = context
        self._context = cast(CellContext, WatchedContext(context, watch))

    def together(self, sequences: int, *, exact: bool) -> JointStep | None:
        """Plain steps of several sequences in one forward, in small contexts of their own. Raises EngineError."""
        options = replace(self._options, n_ctx=CELLS, batch_size=DEPTH, slots=sequences)
        contexts = self._model.contexts(self._setting, options, sequences, 1)
        try:
            return joint_step(contexts, exact=exact)
        finally:
            for context in reversed(contexts):  # the first owns what they share
                context.close()

    def cut(self, size: int) -> bool:
        """Keep the first `size` cells; some of the last forward's by single steps, where the memory cannot be cut."""
        if self._context.cut(size):
            return True
        kept = self._forwarded[: size - (self._context.size - self._context.last)]
        return 0 < len(kept) < self._context.last and self._context.feed_again(kept, (1,))

    def clear(self) -> None:
        """Forget every cell."""
        self._context.clear()

    def close(self) -> None:
        """Free the model and its contexts."""
        if self._watched is not None:
            self._watched[0].close()
        self._context.close()
        self._model.close()


def _digest(context: CellContext, i: int) -> bytes:
    return digest_of(context.row(i)) + context.told(i)


def open_probe(
    dialect: Dialect, pin: TargetPin, setting: EngineSetting, max_width: int, options: EngineOptions
) -> CellProbe:
    """Load `pin` in `setting`. Raises BrokenModel or EngineError, naming the model."""
    model = dialect.open(pin, setting, options)
    context: CellContext | None = None
    try:
        context = model.context(setting, options, max_width)
        build = dialect.engine_pin(options.state_dir)
        obstacle, many = model.obstacle(context), dialect.experts(pin) > 0
        return CellProbe(model, context, build, obstacle, setting, options, experts=many)
    except BaseException:
        if context is not None:
            context.close()
        model.close()
        raise
