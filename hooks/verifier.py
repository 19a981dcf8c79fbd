"""What a verifier is, and what it may be able to do besides. `pilotfish.hooks.protocols` has the whole contract."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pilotfish.hooks.bridge import Vocabulary
from pilotfish.hooks.probe import Probe
from pilotfish.hooks.target import TargetEngine
from pilotfish.hooks.types import DeviceMemory, EngineOptions, EngineSetting, Footprint, Lane, TargetPin


@runtime_checkable
class Verifier(Protocol):
    """Loads target models. `name` is the registry name."""

    name: str

    def load(self, pin: TargetPin, lane: Lane | None, options: EngineOptions) -> TargetEngine:
        """Load `pin` in `lane`, or in the lane that a check at load finds safe when `lane` is None.

        Raises EngineError or BrokenModel, naming the model.
        """
        ...


@runtime_checkable
class CertifiableVerifier(Verifier, Protocol):
    """A verifier whose models can be certified. One that is only a `Verifier` keeps to its own check at load."""

    def fingerprint(self, state_dir: Path | None) -> str:
        """`EnginePin.fingerprint` of the engine that would be loaded, found without loading it."""
        ...

    def probe(self, pin: TargetPin, setting: EngineSetting, max_width: int, options: EngineOptions) -> Probe:
        """Load `pin` in `setting`, with room for forwards of up to `max_width` tokens.

        The setting's `environment` is in force already when this is called. Raises EngineError or BrokenModel.
        """
        ...


@runtime_checkable
class RefusesModels(Protocol):
    """A verifier that does not compute every model that a pin can be taken of, and knows which."""

    def unfit_for(self, pin: TargetPin, options: EngineOptions, /) -> str:
        """Why `load` without a lane would refuse `pin`; empty when nothing speaks against it. Raises no PilotfishError.

        Cheap: no weights are read, and what took a look is remembered in `options.state_dir`.
        """
        ...


@runtime_checkable
class TellsDevices(Protocol):
    """A verifier that may compute on accelerators. One without this computes on the processor."""

    def devices(self) -> tuple[str, ...]:
        """The accelerators that `load` may put layers on, by the engine's names; loads nothing. Raises EngineError."""
        ...


@runtime_checkable
class ReadsVocabularies(Protocol):
    """A verifier that can open a vocabulary without its weights."""

    def vocabulary(self, source: TargetPin | Path, /) -> AbstractContextManager[Vocabulary]:
        """The vocabulary of a GGUF or a tokenizer file. Raises PilotfishError."""
        ...


@runtime_checkable
class TellsFootprint(Protocol):
    """A verifier that knows what a target takes. Of another's target the weights are counted, and no cache."""

    def footprint(self, pin: TargetPin, options: EngineOptions) -> Footprint:
        """What `load` will take, from metadata alone. Raises BrokenModel or EngineError."""
        ...


@runtime_checkable
class TellsMemory(Protocol):
    """A verifier that can be asked about accelerators. Without this only the system's memory is known."""

    def memory(self, device: str) -> DeviceMemory | None:
        """The memory of `device`, a name as in `Footprint`; None where the engine has no such device."""
        ...


@runtime_checkable
class Requantizes(Protocol):
    """A verifier that can write weights in another number format, for the lab."""

    def requantize(self, source: Path, target: Path, kind: str) -> None:
        """Write the model `source` to `target` as `kind`, e.g. `Q4_0`. Raises EngineError."""
        ...


class VerifierFactory(Protocol):
    """Builds a verifier from its own config table."""

    def __call__(self, config: Mapping[str, Any], /) -> Verifier: ...
