"""Certification of a model on this machine: what the command and the idle certifier both do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from pilotfish.daemon.certify.certificate import Certificate, CertificateStore, identity_for
from pilotfish.daemon.certify.certifier import BUDGET, Certifier
from pilotfish.daemon.certify.lanes import MAX_WIDTH
from pilotfish.daemon.certify.left_to_stock import LeftToStock
from pilotfish.daemon.certify.probe_driver import Deadline, GivenIds
from pilotfish.daemon.certify.probe_process import RemoteProbe
from pilotfish.daemon.certify.reproductions import Reproduction
from pilotfish.daemon.certify.suitability import Suitability
from pilotfish.daemon.certify.task import CertificationTask, OpenProbe, Progress, silent
from pilotfish.hooks.errors import EngineError, UsageError
from pilotfish.hooks.protocols import TellsDevices, Verifier
from pilotfish.hooks.sample_text import SAMPLE
from pilotfish.hooks.types import EngineOptions, EngineSetting, Parity, TargetPin
from pilotfish.manifests.first_blocks import FirstBlocks, first_blocks

MEMORY_FACTOR = 2.5  # model sizes that must be free to hold it twice: weights may be repacked, caches come on top


def certify(
    pin: TargetPin,
    verifiers: Sequence[Verifier],
    options: EngineOptions,
    *,
    parity: Parity = Parity.LANE,
    budget: float = BUDGET,
    prompts_apart: bool = True,
    regressions: Sequence[Reproduction] = (),
    known: Certificate | None = None,
    progress: Progress = silent,
) -> tuple[Certificate, Path | None]:
    """Certify `pin` and keep the certificate under `options.state_dir`; the certificate and its file, None if not kept.

    The fastest exact lane of any of `verifiers` is chosen, for as many requests at once as the launch has slots, and
    with long prompts read as fast as an engine can if `prompts_apart`. The widths of the lane are compared after the
    prefixes of `regressions`, too. A certificate that only looked at less than `known`, which is there, is not kept.
    Raises UsageError for a regression with ids that the model has not, EngineError when none of them offers a probe,
    EngineError or BrokenModel when none loads the model.
    """
    identity = identity_for(pin, verifiers, options, parity)
    if identity is None:
        names = ", ".join(verifier.name for verifier in verifiers)
        raise EngineError(f"{pin.name}: no probe is offered by {names}, so it cannot be certified")
    deadline = Deadline(budget)
    with _part_of(pin, verifiers, options, whole=bool(regressions)) as part:
        engines = dict(identity.engines)
        task = CertificationTask(
            identity,
            pin.name,
            options,
            engines=tuple(verifier.name for verifier in verifiers if verifier.name in engines),
            text=SAMPLE,
            bos=pin.tokenizer.bos if pin.tokenizer.add_bos else None,
            prompts_apart=prompts_apart,
            keep_stock=has_room_twice(pin) and not options.far_ends,  # a far end serves one process at a time
            known=Suitability(pin, engines, options),
            architecture=pin.architecture,
            quantization=pin.quantization,
            size=size_of(pin),
            open_part=_opens(part.pin, options, deep=True) if part else None,
            part=part.told if part else "",
            regressions=tuple(_checked(one, pin) for one in regressions),
        )
        certifier = Certifier(task, _opens(pin, options), budget=budget, deadline=deadline, progress=progress)
        certificate = certifier.run()
    better = certificate.conclusive and not (known and certificate.only_less_than(known))
    kept = CertificateStore(options.state_dir).put(certificate) if better else None
    if kept:
        LeftToStock(options.state_dir, pin.path).forget()
    return certificate, kept


def _opens(pin: TargetPin, options: EngineOptions, *, deep: bool = False) -> OpenProbe:
    def open_probe(setting: EngineSetting, until: Deadline) -> RemoteProbe:
        return RemoteProbe(pin, setting, MAX_WIDTH, options, until, deep=deep)

    return open_probe


@contextlib.contextmanager
def _part_of(
    pin: TargetPin, verifiers: Sequence[Verifier], options: EngineOptions, *, whole: bool
) -> Iterator[FirstBlocks | None]:
    """What tells of the model's rows; None where it is to be the whole, or layers run on several devices."""
    devices = any(isinstance(verifier, TellsDevices) and verifier.devices() for verifier in verifiers)
    if whole or options.far_ends or (options.gpu_layers != 0 and devices):
        yield None
        return
    with first_blocks(pin, options.state_dir) as part:
        yield part


def _checked(regression: Reproduction, pin: TargetPin) -> GivenIds:
    most = max(regression.all_ids())
    if pin.tokenizer.n_vocab and most >= pin.tokenizer.n_vocab:
        raise UsageError(
            f"a regression probe of {regression.model} has the id {most}, which {pin.name} has not: leave it out"
        )
    return GivenIds(regression.prefix, regression.following)


def size_of(pin: TargetPin) -> int:
    """Bytes of the weights."""
    return sum(weight.size for weight in pin.weights)


def has_room_twice(pin: TargetPin) -> bool:
    """Whether the model may be loaded twice at once."""
    return bool(psutil.virtual_memory().available > MEMORY_FACTOR * size_of(pin))
