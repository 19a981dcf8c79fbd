"""Certificates: what was measured about a model on this machine, kept as JSON under the state directory.

A certificate is good for exactly one `Identity`. The file's name is a hash of it, the identity is written inside
too, and a checksum covers everything, so a file that was cut short, edited or copied from another machine is
ignored with a log line and the model is measured again. The checksum guards against accidents, not against
somebody who computes a new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pilotfish.daemon.certify.device import device_name
from pilotfish.daemon.certify.lanes import ranges, reference
from pilotfish.daemon.certify.probe_wire import lane_from_json, lane_to_json, typed
from pilotfish.hooks.errors import UsageError
from pilotfish.hooks.protocols import CertifiableVerifier, Verifier
from pilotfish.hooks.types import EngineOptions, Lane, Parity, TargetPin
from pilotfish.manifests.looking import is_dir, is_file
from pilotfish.manifests.remembered import write_atomically

log = logging.getLogger("pilotfish.certificates")

FORMAT = 7  # counted up when what is measured, or what it means, changes
FOLDER = "certificates"
OF_TIME = ("time ran out", "compared up to")  # how findings begin that say nothing about rows
DEARER = 1.05  # a ratio worth mentioning
_FAR_END = re.compile(r"(?:far ends|,) ([\w.-]+:\d+)(?= \(|,|$)")  # in a device


@dataclass(frozen=True, slots=True)
class Identity:
    """Everything that must be equal for a certificate to hold. `parity` is the level that was asked for."""

    weights: tuple[str, ...]
    engines: tuple[tuple[str, str], ...]  # name and fingerprint of every engine that might compute
    device: str
    threads: int | None
    gpu_layers: int | None
    cache_type_k: str | None  # as the launch set them
    cache_type_v: str | None
    flash_attention: bool | None
    environment: tuple[tuple[str, str], ...]  # what it tells the engine
    parity: Parity = Parity.LANE
    slots: int = 1  # requests at once, for which the lane is the fastest

    @property
    def key(self) -> str:
        """The certificate's name: 32 hex digits."""
        return hashlib.sha256(_canonical({"format": FORMAT, **asdict(self)})).hexdigest()[:32]

    def differences(self, other: Identity) -> list[str]:
        """Which parts differ."""
        mine, theirs = asdict(self), asdict(other)
        return [name for name in mine if mine[name] != theirs[name]]


def identity_of(
    pin: TargetPin, engines: Mapping[str, str], options: EngineOptions, parity: Parity = Parity.LANE
) -> Identity:
    """The identity of a load that is about to happen; `engines` are the fingerprints of what may load it, by name."""
    return Identity(
        weights=tuple(weight.digest for weight in pin.weights),
        engines=tuple(sorted(engines.items())),
        device=_device(options),
        threads=options.threads,
        gpu_layers=options.gpu_layers,
        cache_type_k=options.cache_type_k,
        cache_type_v=options.cache_type_v,
        flash_attention=options.flash_attention,
        environment=tuple(sorted((k, v) for k, v in os.environ.items() if k.startswith("GGML_"))),
        parity=parity,
        slots=options.slots,
    )


def _device(options: EngineOptions) -> str:
    """All that computes: this machine, of its accelerators which one, and the far ends with their shares."""
    parts = [device_name()]
    if options.main_gpu is not None:
        parts.append(f"accelerator {options.main_gpu} alone")
    if options.far_ends:
        parts.append(f"far ends {', '.join(map(str, options.far_ends))}")
    if options.tensor_split:
        parts.append(f"split {':'.join(f'{share:g}' for share in options.tensor_split)}")
    elif options.far_ends:
        parts.append("split by the engine")
    return ", ".join(parts)


def is_of_here(device: str, far_ends: Sequence[str]) -> bool:
    """Whether `device`, as identities have it, is this machine with exactly these far ends, whatever computes there."""
    here, beyond = device_name(), device.removeprefix(device_name())
    return device.startswith(here) and (set(_FAR_END.findall(beyond)) == set(far_ends) if far_ends else not beyond)


def identity_for(
    pin: TargetPin, verifiers: Sequence[Verifier], options: EngineOptions, parity: Parity
) -> Identity | None:
    """The identity of loading `pin` with one of `verifiers`; None when none of their models can be certified.

    Loads nothing. Raises EngineError.
    """
    engines = {v.name: v.fingerprint(options.state_dir) for v in verifiers if isinstance(v, CertifiableVerifier)}
    return identity_of(pin, engines, options, parity) if engines else None


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was measured. `costs` are (width, position, seconds) in the lane; `variants` and `regimes` are for people.

    `complete` says that every width got all the rows it should; otherwise time ran out and `findings` say where. One
    that is not `conclusive` found no lane because time ran out: it is not kept, since the check at load knows more.
    """

    identity: Identity
    model: str
    architecture: str
    quantization: str
    size: int  # bytes of the weights
    engine: str  # the version of what computes in the lane, for people
    reference: str  # the engine whose stock settings everything was compared with
    created: str  # ISO 8601, UTC
    n_ctx: int
    lane: Lane
    plain_ratio: float  # the lane's plain step relative to the reference's
    prompt_ratio: float  # feeding an ordinary prompt, relative to stock's
    expected_ratio: float  # expected time per token with speculation relative to plain stock; see `lanes`
    switch_points: tuple[int, ...]  # cells at which the engine changes its kernels
    costs: tuple[tuple[int, int, float], ...]
    regimes: tuple[Mapping[str, Any], ...]
    variants: tuple[Mapping[str, Any], ...]
    findings: tuple[str, ...]
    seconds: float  # that the certification took
    complete: bool
    unmeasured: tuple[str, ...] = ()  # engines for which there was no time: another certification may choose them
    conclusive: bool = True

    @property
    def cut_short(self) -> bool:
        """Whether time ran out before the whole context was looked at, so that drafting ends early."""
        return not self.complete and self.reach < self.n_ctx

    @property
    def reach(self) -> int:
        """Tokens of context in which the lane's widths may be used."""
        return min(self.lane.max_context or self.n_ctx, self.n_ctx)

    def only_less_than(self, other: Certificate) -> bool:
        """Whether it says nothing against `other`, and time merely cut it shorter."""
        if not self.cut_short or self.reach >= other.reach or len(self.unmeasured) < len(other.unmeasured):
            return False
        if self.lane.setting != other.lane.setting:
            return True
        against = {finding for finding in self.findings if not finding.startswith(OF_TIME)} - set(other.findings)
        return not against and set(other.lane.widths) <= set(self.lane.widths)

    def to_json(self) -> dict[str, Any]:
        """The certificate as JSON-ready values, without the checksum."""
        return {"format": FORMAT, **asdict(self), "lane": lane_to_json(self.lane), "key": self.identity.key}

    def summary(self) -> str:
        """One line: the lane, its widths, its parity, and why it is no wider."""
        lane = self.lane
        where = f" up to {lane.max_context} tokens" if lane.max_context and lane.max_context < self.n_ctx else ""
        why = f"; {lane.reason}" if lane.max_width == 1 and lane.reason else ""
        prompts = f", prompts take {self.prompt_ratio:.2f}x {reference(self.reference)}"
        dearer = prompts if self.prompt_ratio > DEARER else ""
        return f"widths {ranges(lane.widths)}{where}, parity {lane.parity} ({lane.setting.title}){dearer}{why}"


def parse(data: bytes) -> Certificate:
    """A certificate from a file's bytes. Raises ValueError saying what is wrong with it."""
    try:
        table = json.loads(data)
        checksum = table.pop("checksum")
        if table["format"] != FORMAT:
            raise ValueError(f"format {table['format']}, this version reads {FORMAT}")
        if checksum != _checksum(table):
            raise ValueError("its checksum does not fit: it was edited or damaged")
        return _from_table(table)
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a certificate ({type(error).__name__}: {error})") from error


def _from_table(table: dict[str, Any]) -> Certificate:
    fields = {name: table[name] for name in Certificate.__slots__}
    identity = table["identity"]
    tuples = {name: tuple((key, value) for key, value in identity[name]) for name in ("environment", "engines")}
    fields["identity"] = typed(Identity, {**identity, "weights": tuple(identity["weights"]), **tuples})
    fields["lane"] = lane_from_json(table["lane"])
    fields["costs"] = tuple((int(width), int(at), float(seconds)) for width, at, seconds in table["costs"])
    for name in ("switch_points", "regimes", "variants", "findings", "unmeasured"):
        fields[name] = tuple(table[name])
    return typed(Certificate, fields)


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the folder: a certificate, or why it is none."""

    path: Path
    certificate: Certificate | None
    trouble: str = ""

    @property
    def key(self) -> str:
        """What `show` and `remove` are given."""
        return self.path.stem


class CertificateStore:
    """The certificates under `state_dir`; None keeps none."""

    def __init__(self, state_dir: Path | None) -> None:
        self.folder = state_dir / FOLDER if state_dir else None

    def find(self, identity: Identity) -> Certificate | None:
        """The certificate for exactly this identity. Anything else that claims to be it is logged and ignored."""
        if self.folder is None:
            return None
        path = self.folder / f"{identity.key}.json"
        if not is_file(path):
            self._tell_near_misses(identity)
            return None
        try:
            entry = _read(path)
        except FileNotFoundError:  # removed a moment ago
            return None
        trouble = entry.trouble
        if entry.certificate and (differences := entry.certificate.identity.differences(identity)):
            trouble = f"it is for another {', '.join(differences)}"
        if trouble:
            log.warning("ignored the certificate %s: %s; the model is measured again", path, trouble)
            return None
        return entry.certificate

    def _tell_near_misses(self, identity: Identity) -> None:
        for certificate in self.of_weights(identity.weights):
            differences = certificate.identity.differences(identity)
            log.info("the certificate of %s is for another %s: ignored", certificate.model, ", ".join(differences))

    def put(self, certificate: Certificate) -> Path | None:
        """Write it, whole or not at all; where it is. A folder that cannot be written is a log line."""
        if self.folder is None:
            return None
        table = json.loads(json.dumps(certificate.to_json()))
        path = self.folder / f"{certificate.identity.key}.json"
        try:
            write_atomically(path, json.dumps({**table, "checksum": _checksum(table)}, indent=1).encode())
        except OSError as error:
            log.warning("%s cannot be written (%s): the certificate is lost", path, error.strerror)
            return None
        return path

    def entries(self) -> list[Entry]:
        """Every file of the folder, newest first. One that is removed meanwhile is none."""
        found: list[tuple[float, Entry]] = []
        for path in self.folder.glob("*.json") if self.folder and is_dir(self.folder) else ():
            with contextlib.suppress(FileNotFoundError):
                found.append((path.stat().st_mtime, _read(path)))
        return [entry for _, entry in sorted(found, key=lambda each: each[0], reverse=True)]

    def of_weights(self, weights: Sequence[str]) -> Iterator[Certificate]:
        """The readable certificates of a model, newest first."""
        for entry in self.entries():
            if entry.certificate and entry.certificate.identity.weights == tuple(weights):
                yield entry.certificate

    def get(self, key: str) -> Entry:
        """The entry whose key begins with `key`. Raises UsageError when there is none, or more than one."""
        found = [entry for entry in self.entries() if entry.key.startswith(key)]
        if len(found) != 1 or not key:
            what = "no certificate begins" if not found else f"{len(found)} certificates begin"
            raise UsageError(f"{what} with {key!r}; `pilotfish certificates list` shows them")
        return found[0]


def _read(path: Path) -> Entry:
    """Raises FileNotFoundError for a file that is gone."""
    try:
        certificate = parse(path.read_bytes())
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        return Entry(path, None, str(error))
    if certificate.identity.key != path.stem:
        return Entry(path, None, "its name is not that of its content")
    return Entry(path, certificate)


def _checksum(table: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(table)).hexdigest()


def _canonical(table: Mapping[str, Any]) -> bytes:
    return json.dumps(table, sort_keys=True, separators=(",", ":")).encode()
