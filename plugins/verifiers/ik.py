"""The `ik` verifier: GGUF models through ik_llama.cpp, as ik-llama-cpp-python ships it.

Importing this module loads nothing; the library comes in with the first model, after a look at it from a process of
its own. Config table::

    [verifiers.ik]
    log = "logger"      # ik_llama.cpp's log at debug level of the logger pilotfish.ik, or "stderr": unchanged
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotfish.hooks.errors import BrokenModel, EngineError
from pilotfish.hooks.protocols import VerifierFactory, Vocabulary
from pilotfish.hooks.specs import hookimpl
from pilotfish.hooks.types import EngineOptions, EngineSetting, Footprint, Lane, TargetPin
from pilotfish.plugins._cells.log import log_target
from pilotfish.plugins._cells.setting import check_setting

if TYPE_CHECKING:
    from pilotfish.plugins._cells.engine import CellEngine
    from pilotfish.plugins._cells.probe import CellProbe
    from pilotfish.plugins._ik.model import IkDialect


class IkVerifier:
    """Loads GGUF models. `config["log"]` says where ik_llama.cpp's own log goes."""

    name = "ik"

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.log = log_target(self.name, config or {})
        self._fits = False  # not looked at yet
        self._state_dir: Path | None = None  # where what was found is remembered

    def load(self, pin: TargetPin, lane: Lane | None, options: EngineOptions) -> CellEngine:
        """Load `pin` in `lane`, or in the lane that real forwards show to be safe when `lane` is None.

        Raises BrokenModel when the library refuses the file and EngineError when the library, its settings or the
        kind of model are at fault; both name the model and carry the cause.
        """
        if lane is not None:
            check_setting(pin, lane.setting, self.name)
        from pilotfish.plugins._cells.loading import load

        return load(self._dialect(pin, options), pin, lane, options)

    def unfit_for(self, pin: TargetPin, options: EngineOptions) -> str:
        """Why `load` would refuse `pin`, the library's own faults included; empty when nothing speaks against it.

        No weights are read, and no library comes into this process. What another one found is remembered in
        `options.state_dir`.
        """
        from pilotfish.plugins._ik.model import IkDialect
        from pilotfish.plugins._ik.model_fitness import check_model

        try:
            self.fingerprint(options.state_dir)
            check_model(pin, IkDialect.exact_setting(options), options.state_dir)
        except (BrokenModel, EngineError) as error:
            return str(error)
        return ""

    def probe(self, pin: TargetPin, setting: EngineSetting, max_width: int, options: EngineOptions) -> CellProbe:
        """Load `pin` in `setting` for certification. Raises as `load`."""
        check_setting(pin, setting, self.name)
        from pilotfish.plugins._cells.probe import open_probe

        return open_probe(self._dialect(pin, options), pin, setting, max_width, options)

    def fingerprint(self, state_dir: Path | None) -> str:
        """The fingerprint of the libraries that `load` would use; loads nothing. Raises EngineError if it could not."""
        from pilotfish.plugins._ik.build import fingerprint
        from pilotfish.plugins._ik.fitness import check

        self._state_dir = state_dir
        if not self._fits:
            check(state_dir)
            self._fits = True
        return fingerprint(state_dir)

    def devices(self) -> tuple[str, ...]:
        """The accelerators that `load` may put layers on, by ggml's names; loads nothing. Raises EngineError."""
        from pilotfish.plugins._ik.fitness import accelerators

        return accelerators(self._state_dir)

    def vocabulary(self, source: TargetPin | Path) -> AbstractContextManager[Vocabulary]:
        """The vocabulary of a GGUF, or of a tokenizer.json or tokenizer.model; no weights are read.

        Raises BrokenModel, ModelNotFound or EngineError.
        """
        if isinstance(source, Path):
            from pilotfish.plugins._vocabularies import load_vocabulary

            return nullcontext(load_vocabulary(source))
        from pilotfish.plugins._ik.vocabulary import open_vocabulary

        return open_vocabulary(self._dialect(source, EngineOptions()).library, source)

    def footprint(self, pin: TargetPin, options: EngineOptions) -> Footprint:
        """What `load` will take, from the file's header. Raises BrokenModel."""
        from pilotfish.plugins._cells.footprint import footprint_in
        from pilotfish.plugins._ik.model import IkDialect
        from pilotfish.plugins._ik.read_twice import read_twice

        setting, slots = IkDialect.exact_setting(options), options.slots
        needs = footprint_in(pin, setting, options, "cpu", rows=IkDialect.room, contexts=slots)
        return needs if options.use_mmap else replace(needs, weights=needs.weights + read_twice(pin))

    def requantize(self, source: Path, target: Path, kind: str) -> None:
        """Write the GGUF `source` to `target` in another number format, for the demo, tests and experiments."""
        from pilotfish.plugins._ik.quantizer import requantize

        requantize(source, target, kind)

    def _dialect(self, pin: TargetPin, options: EngineOptions) -> IkDialect:
        from pilotfish.plugins._ik.model import IkDialect

        try:
            return IkDialect(options, self.log)
        except EngineError as error:
            raise EngineError(f"{pin.name}: {error}") from error


@hookimpl
def pilotfish_register_verifiers(register: Callable[[str, VerifierFactory], None], config: Mapping[str, Any]) -> None:
    register(IkVerifier.name, IkVerifier)
