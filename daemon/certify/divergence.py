"""How far an engine's rows are from libllama's: the mean KL divergence over rows of natural text.

libllama's rows lie in a file without a name until the other engines' were compared with them, so that neither the model
twice nor all rows at once must fit in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pilotfish.daemon.certify.lanes import Site
from pilotfish.daemon.certify.probe_driver import ProbeDriver
from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.protocols import ReadsLogits

ROWS = 200
LEAST_ROWS = 40  # on a model too slow for all of them: a library that computes something else shows at once
WIDTH = 8  # rows of one forward, for the price of two or three steps
START = 160  # tokens of context before the first row: more than one prompt block, so that wrong wide kernels show
TEXT = 1  # the number of the material


class StockRows:
    """The rows of `driver`'s engine, read within `seconds` where LEAST_ROWS are. Raises EngineError or OutOfTime."""

    def __init__(self, driver: ProbeDriver, seconds: float) -> None:
        self._n_vocab = driver.probe.n_vocab
        self.rows = 0
        patience = driver.deadline.sooner(seconds)
        try:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the survey
            for block in _blocks(driver, ROWS):
                self._file.write(block)
                self.rows += WIDTH
                if self.rows >= LEAST_ROWS and patience.left <= 0:
                    break
        except OSError as error:
            raise EngineError(f"rows to compare engines with cannot be kept: {error.strerror}") from error

    @property
    def complete(self) -> bool:
        """Whether no row is missing for lack of time."""
        return self.rows == ROWS

    def divergence_of(self, driver: ProbeDriver) -> float:
        """The mean KL divergence, in nats, of another engine's rows. Raises EngineError or OutOfTime."""
        if driver.probe.n_vocab != self._n_vocab:
            raise EngineError(f"its vocabulary has {driver.probe.n_vocab} tokens, libllama's {self._n_vocab}")
        self._file.seek(0)
        total = 0.0
        for block in _blocks(driver, self.rows):
            ours = _rows(self._file.read(len(block)), self._n_vocab)
            total += sum(map(_divergence, ours, _rows(block, self._n_vocab)))
        return total / self.rows

    def close(self) -> None:
        """Give the disk space back."""
        self._file.close()


def _blocks(driver: ProbeDriver, count: int) -> Iterator[bytes]:
    """`count` rows, a forward at a time, as many as the context has room for."""
    probe = driver.probe
    if not isinstance(probe, ReadsLogits):
        raise EngineError("its rows cannot be read, so that nobody knows how far they are from libllama's")
    start = min(START, probe.n_ctx // 2)
    count = min(count, (probe.n_ctx - start) // WIDTH * WIDTH)
    if count <= 0:
        raise EngineError(f"a context of {probe.n_ctx} tokens has no room for rows to compare with libllama's")
    ids = driver.goto(Site(TEXT, start, count), start + count)
    for at in range(start, start + count, WIDTH):
        driver.deadline.check()
        yield probe.logits(ids[at : at + WIDTH], WIDTH)


def _rows(block: bytes, n_vocab: int) -> npt.NDArray[np.float32]:
    return np.frombuffer(block, np.float32).reshape(-1, n_vocab)


def _divergence(ours: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32]) -> float:
    """KL(ours || theirs) of one row of logits each."""
    p, q = _log_softmax(ours), _log_softmax(theirs)
    return float(np.sum(np.exp(p) * (p - q)))


def _log_softmax(row: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    shifted = row.astype(np.float64) - float(row.max())
    return np.asarray(shifted - np.log(np.sum(np.exp(shifted))))
