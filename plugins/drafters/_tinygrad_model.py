"""A draft model that tinygrad computes: forwards from a position of its cache on, on any of tinygrad's devices.

A forward from position n on overwrites the cells from n on, and sees none behind its own: that is the rollback.
tinygrad compiles each forward for its shapes, so there are two: one token, and a block of tokens whose length and
position are variables of the kernels.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from tinygrad import Device, Tensor, TinyJit, UOp, dtypes
from tinygrad.device import ALL_DEVICES
from tinygrad.helpers import DEV, Context
from tinygrad.llm.model import Transformer

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import Host
from pilotfish.plugins.drafters._drafter_thread import DrafterThread
from pilotfish.plugins.drafters._model_session import Guess
from pilotfish.plugins.drafters._tinygrad_devices import EXCLUSIVE

thread = DrafterThread("tinygrad")  # one for the process: so is tinygrad's connection to its kernel cache
_leases: dict[str, ExitStack] = {}  # of devices that tinygrad has open, by name


class TinygradModel:
    """A `DraftModel`; `load` makes it. Every call that computes runs on `thread`."""

    def __init__(self, path: Path, device: str, n_ctx: int, n_vocab: int, longest: int) -> None:
        self._device, self._longest = device, longest
        with on(device):
            self._model: Any = Transformer.from_gguf(path, max_context=n_ctx)[0]
        self.n_ctx, self.n_vocab = int(self._model.max_context), n_vocab
        self._position = UOp.variable("start_pos", 0, self.n_ctx - 1)
        self._length = UOp.variable("length", 1, longest)
        self._one, self._block = TinyJit(self._forward), TinyJit(self._forward)
        self._size = 0  # cells in use
        self._warm_up()

    def feed(self, tokens: Sequence[int]) -> Guess:
        return thread.run(self._feed, list(tokens))

    def cut(self, size: int) -> None:
        self._size = size

    def _feed(self, tokens: list[int]) -> Guess:
        with on(self._device):
            for at in range(0, len(tokens), self._longest):
                guess = self._run(tokens[at : at + self._longest], self._size + at)
            token, sure = guess.tolist()
        self._size += len(tokens)
        return int(token), float(sure)

    def _run(self, tokens: list[int], position: int) -> Any:
        length = len(tokens)
        start = self._position.bind(position)
        if length == 1:
            return self._one(self._ids(tokens), start)
        ids = self._ids(tokens + [0] * (self._longest - length))
        return self._block(ids[:, : self._length.bind(length)], start)

    def _ids(self, tokens: list[int]) -> Any:
        return Tensor([tokens], dtype=dtypes.int32, device=self._device).contiguous().realize()

    def _forward(self, ids: Any, position: Any) -> Any:
        """`ids` (1, n) after `position` cells; the most likely next id and its probability, (2,) float32."""
        model = self._model
        x = model.token_embd(ids).float()
        for block in model.blk:
            x = block(x, position)
        row = model.output(model.output_norm(x))[:, -1, :].float().contiguous()  # or each use computes it again
        sure = (row - row.max(-1, keepdim=True)).exp().sum(-1).reciprocal()
        return row.argmax(-1).cast(dtypes.float32).cat(sure).realize()  # float32 holds every id up to 2**24

    def _warm_up(self) -> None:
        """Compile. A forward's first call runs as it is and makes the cache, the second is recorded, the others replay.

        The block's first is recorded at once, since the cache is there: setting up a forward takes longer than running
        it (SmolLM2: 5 to 10 s on one core, in Python).
        """
        block = min(self._longest, self.n_ctx)
        self._block.cnt = 1
        for tokens in ([0], [0], [0], [0] * block, [0] * block):
            self._size = 0
            self._feed(tokens)
        self._size = 0


def load(path: Path, wanted: str, host: Host, n_ctx: int, n_vocab: int, longest: int) -> TinygradModel:
    """The model in a GGUF file on the device `wanted`, or on tinygrad's own choice; to be called on `thread`.

    `longest` is how many tokens a forward takes at most.

    Raises DeviceBusy when another process holds the device, EngineError when it cannot be used.
    """
    return TinygradModel(path, open_device(wanted, host), n_ctx, n_vocab, longest)


def open_device(wanted: str, host: Host) -> str:
    """The name of the device, which is open from now on, and leased where only one process may use it.

    Without `wanted`, that of the environment variable DEV, or the first that tinygrad can open.
    """
    wanted = wanted or str(DEV.device)
    if wanted:
        _open(wanted, host)
        return wanted
    for device in ALL_DEVICES:
        with contextlib.suppress(EngineError):
            _open(device, host)
            return str(device)
    raise EngineError(
        "tinygrad finds no device; install clang for its CPU device, or name one: drafters.tinygrad.device"
    )


def _open(device: str, host: Host) -> None:
    """tinygrad closes no device before the process ends, so its lease is held as long."""
    if device in _leases:
        return
    with ExitStack() as lease:
        if device in EXCLUSIVE:
            lease.enter_context(host.lease(device))
        _need_compiler(device)
        try:
            with on(device):
                Device[device]
        except Exception as error:  # whatever its driver raises, assertions included
            raise EngineError(f"tinygrad cannot use the device {device}: {error or type(error).__name__}") from error
        _leases[device] = lease.pop_all()


def _need_compiler(device: str) -> None:
    """Only noticed at the first kernel otherwise."""
    compiler = os.environ.get("CC", "clang")
    if device == "CPU" and not DEV.renderer and not shutil.which(compiler):
        raise EngineError(f"tinygrad's CPU device needs {compiler}, which is not installed: apt-get install clang")


def on(device: str) -> AbstractContextManager[Any]:
    """Make `device` the one that tinygrad puts things on; DEV's finer points hold if they are about it."""
    return contextlib.nullcontext() if DEV.device == device else Context(DEV=device)
