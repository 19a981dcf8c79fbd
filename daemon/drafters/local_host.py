"""What this machine does for a drafter that has something to load."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from pilotfish.daemon.config.paths import state_dir
from pilotfish.daemon.drafters import lease
from pilotfish.daemon.drafters.admission import TargetMemory, admit
from pilotfish.daemon.drafters.memory_bounds import bounds_for
from pilotfish.hooks.errors import InvalidModelName, ModelNotFound
from pilotfish.hooks.types import Footprint, TargetPin
from pilotfish.manifests.pins import pin_file, pin_model
from pilotfish.manifests.store import Store


class LocalHost:
    """A `pilotfish.hooks.protocols.Host` of this machine: its model store, its devices, its state folder."""

    def __init__(
        self, store: Store | None = None, state: Path | None = None, *, owner: str = "", wait: float = 0.0
    ) -> None:
        """`owner` is what a lease says it is for; `wait` is how many seconds a lease is waited for."""
        self.state_dir = state or state_dir()
        self._given = store
        self._owner = owner
        self._wait = wait

    @property
    def _store(self) -> Store:
        """Looked for only when a drafter asks for a model: most do not, and it need not be there for them."""
        self._given = self._given or Store.find()
        return self._given

    def pin(self, model: str) -> TargetPin:
        """A model of the store by its name, or a .gguf file by its path. Raises ModelNotFound or BrokenModel."""
        path = Path(model).expanduser()
        if model.endswith(".gguf") or path.is_absolute():
            if not path.is_file():
                raise ModelNotFound(f"{path} is not there; correct the path, or name a model of {self._store.root}")
            return pin_file(path, self.state_dir, self._store)
        try:
            return pin_model(self._store, model, self.state_dir)
        except InvalidModelName as error:
            raise ModelNotFound(f"{model!r} is neither a model's name nor the path of a .gguf file: {error}") from error

    def lease(self, device: str) -> AbstractContextManager[object]:
        """Hold a device that only one process may use, until the context ends. Raises DeviceBusy, naming the holder."""
        return lease.acquire(device, lease.Owner.this_process(self._owner), wait=self._wait)


def admit_alone(name: str, footprint: Footprint | None) -> None:
    """Return if a drafter fits into this machine's memory, where no target computes. Raises AdmissionRefused."""
    if footprint is not None:
        admit(name, footprint, TargetMemory("", weights=0, cache=0), bounds_for(footprint.device))
