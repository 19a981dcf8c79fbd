"""The `mlx` verifier: safetensors models of a store through mlx-lm, on Metal, CUDA or a processor.

Importing this module loads nothing; MLX comes in with the first model. Config table::

    [verifiers.mlx]
    device = ""         # cpu or gpu; empty: MLX's own choice
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotfish.hooks.errors import ConfigError, EngineError, PilotfishError
from pilotfish.hooks.protocols import VerifierFactory, Vocabulary
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import EngineOptions, EngineSetting, Footprint, Lane, TargetPin
from pilotfish.plugins._cells.setting import check_setting
from pilotfish.plugins._mlx import build
from pilotfish.plugins._mlx.layers import layers_of
from pilotfish.plugins._mlx.model_classes import demand_class
from pilotfish.plugins._mlx.sizes import ModelSizes, footprint_of
from pilotfish.plugins._open_files import open_files_kept

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine
    from pilotfish.plugins._cells.probe import CellProbe
    from pilotfish.plugins._mlx.model import MLXDialect

DEVICES = ("", "cpu", "gpu")


class MLXVerifier:
    """Loads safetensors models. `config["device"]` says where they are computed."""

    name = "mlx"

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self._device = (config or {}).get("device", "")
        if self._device not in DEVICES:
            raise ConfigError(f"verifiers.mlx.device: expected one of {DEVICES}, got {self._device!r}")

    def load(self, pin: TargetPin, lane: Lane | None, options: EngineOptions) -> CellEngine:
        """Load `pin` in `lane`, or in the lane that real forwards show to be safe when `lane` is None.

        Raises EngineMissing, BrokenModel for tensors that do not make the model that its config.json describes, and
        EngineError for kinds of models, number formats and settings that MLX does not have; all name the model.
        """
        if lane is not None:
            check_setting(pin, lane.setting, self.name)
        from pilotfish.plugins._cells.loading import load

        return load(self._dialect(pin), pin, lane, options)

    def unfit_for(self, pin: TargetPin, options: EngineOptions) -> str:
        """Why `load` would refuse `pin`; empty when nothing speaks against it. Reads no weights, and imports no MLX."""
        try:
            layers = layers_of(pin)
            self.fingerprint(options.state_dir)
            demand_class(layers, pin.name)
        except PilotfishError as error:
            return str(error)
        return ""

    def probe(self, pin: TargetPin, setting: EngineSetting, max_width: int, options: EngineOptions) -> CellProbe:
        """Load `pin` in `setting` for certification. Raises as `load`."""
        check_setting(pin, setting, self.name)
        from pilotfish.plugins._cells.probe import open_probe

        return open_probe(self._dialect(pin), pin, setting, max_width, options)

    def fingerprint(self, state_dir: Path | None) -> str:
        """The fingerprint of what `load` would compute with; imports nothing of it. Raises EngineMissing."""
        return build.fingerprint(state_dir, self._device)

    def devices(self) -> tuple[str, ...]:
        """The accelerators that `load` may compute on, as far as is known without MLX."""
        return ("Metal",) if build.has_metal() and self._device != "cpu" else ()

    def vocabulary(self, source: TargetPin | Path) -> AbstractContextManager[Vocabulary]:
        """The vocabulary of a model, or of a tokenizer.json or tokenizer.model. Raises PilotfishError."""
        from pilotfish.plugins._vocabularies import layers_vocabulary, load_vocabulary

        if isinstance(source, Path):
            return nullcontext(load_vocabulary(source))
        return nullcontext(layers_vocabulary(layers_of(source)))

    def footprint(self, pin: TargetPin, options: EngineOptions) -> Footprint:
        """What `load` will take, from config.json and the blobs' sizes. Raises BrokenModel or EngineError."""
        widened = self._device == "cpu" or options.gpu_layers == 0 or not build.has_metal()
        return footprint_of(pin, ModelSizes.of(layers_of(pin)), options, widened=widened)

    def _dialect(self, pin: TargetPin) -> MLXDialect:
        build.fingerprint(None)  # says what is missing
        try:
            with open_files_kept():
                from pilotfish.plugins._mlx.model import MLXDialect
        except (ImportError, OSError, ValueError) as error:
            raise EngineError(f"{pin.name}: MLX cannot be loaded ({error}); {build.REMEDY}") from error
        return MLXDialect(self._device)


@hookimpl
def pilotfish_register_verifiers(register: Callable[[str, VerifierFactory], None], config: Mapping[str, Any]) -> None:
    register(MLXVerifier.name, MLXVerifier)
