"""The `llama` verifier: GGUF models through libllama, as llama-cpp-python ships it.

Importing this module loads nothing; libllama comes in with the first model. Config table::

    [verifiers.llama]
    log = "logger"      # libllama's log at debug level of the logger pilotfish.llama, or "stderr": unchanged
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotfish.hooks.errors import EngineError
from pilotfish.hooks.far_end import FarEndOptions
from pilotfish.hooks.protocols import VerifierFactory, Vocabulary
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import DeviceMemory, EngineOptions, EngineSetting, Footprint, Lane, TargetPin
from pilotfish.plugins._cells.log import log_target
from pilotfish.plugins._cells.setting import check_setting

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine
    from pilotfish.plugins._cells.probe import CellProbe


class LlamaVerifier:
    """Loads GGUF models. `config["log"]` says where libllama's own log goes."""

    name = "llama"

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.log = log_target(self.name, config or {})

    def load(self, pin: TargetPin, lane: Lane | None, options: EngineOptions) -> CellEngine:
        """Load `pin` in `lane`, or in the lane that real forwards show to be safe when `lane` is None.

        Raises BrokenModel when libllama refuses the file and EngineError when the library or its settings
        are at fault; both name the model and carry libllama's own last words.
        """
        self._prepare(pin, lane.setting if lane else None)
        from pilotfish.plugins._cells.loading import load
        from pilotfish.plugins.verifiers._llama_dialect import LlamaDialect

        return load(LlamaDialect(), pin, lane, options)

    def probe(self, pin: TargetPin, setting: EngineSetting, max_width: int, options: EngineOptions) -> CellProbe:
        """Load `pin` in `setting` for certification. Raises as `load`."""
        self._prepare(pin, setting)
        from pilotfish.plugins._cells.probe import open_probe
        from pilotfish.plugins.verifiers._llama_dialect import LlamaDialect

        return open_probe(LlamaDialect(), pin, setting, max_width, options)

    def fingerprint(self, state_dir: Path | None) -> str:
        """The fingerprint of the libraries that `load` would use; loads nothing. Raises EngineError."""
        from pilotfish.plugins._llama.build import expected_folder, fingerprint_of

        return fingerprint_of(expected_folder(), state_dir)

    def devices(self) -> tuple[str, ...]:
        """The accelerators that `load` may put layers on, by ggml's names; loads nothing. Raises EngineError."""
        from pilotfish.plugins._llama.build import devices, expected_folder

        return devices(expected_folder())

    def vocabulary(self, source: TargetPin | Path) -> AbstractContextManager[Vocabulary]:
        """The vocabulary of a GGUF, or of a tokenizer.json or tokenizer.model; no weights are read.

        Raises BrokenModel, ModelNotFound or EngineError.
        """
        if isinstance(source, Path):
            from pilotfish.plugins._vocabularies import load_vocabulary

            return nullcontext(load_vocabulary(source))
        self._open_library(source.name)
        from pilotfish.plugins.verifiers._llama_vocabulary import open_vocabulary

        return open_vocabulary(source)

    def footprint(self, pin: TargetPin, options: EngineOptions) -> Footprint:
        """What `load` will take, from the file's header. Raises BrokenModel, or EngineError without libllama."""
        self._open_library(pin.name)
        from pilotfish.plugins._llama.footprint import footprint

        return footprint(pin, options)

    def memory(self, device: str) -> DeviceMemory | None:
        """The memory of an accelerator by ggml's name; None where libllama does not compute. Raises EngineError."""
        self._open_library(device)
        from pilotfish.plugins._llama.devices import device_memory

        return device_memory(device)

    def requantize(self, source: Path, target: Path, kind: str) -> None:
        """Write the GGUF `source` to `target` in another number format, for tests and experiments."""
        self._open_library(str(source))
        from pilotfish.plugins.verifiers._llama_quantize import requantize

        requantize(source, target, kind)

    def far_end(self, wanted: FarEndOptions) -> tuple[str, ...]:
        """The command of a process that computes layers for other machines; loads nothing. Raises EngineError."""
        from pilotfish.plugins._llama.far_end import command_of

        return command_of(wanted)

    def _prepare(self, pin: TargetPin, setting: EngineSetting | None) -> None:
        if pin.format != "gguf":
            raise EngineError(f"{pin.name} is a {pin.format} model, and libllama computes GGUFs; leave this one to mlx")
        if setting is not None:
            check_setting(pin, setting, self.name)
        self._open_library(pin.name)

    def _open_library(self, name: str) -> None:
        try:
            from pilotfish.plugins._llama import library
        except ImportError as error:
            raise EngineError(
                f"{name}: libllama cannot be loaded ({error}); install it with: pip install 'pilotfish[llama]'"
            ) from error
        library.send_log_to(self.log)


@hookimpl
def pilotfish_register_verifiers(register: Callable[[str, VerifierFactory], None], config: Mapping[str, Any]) -> None:
    register(LlamaVerifier.name, LlamaVerifier)
