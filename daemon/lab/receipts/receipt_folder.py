"""A receipt on disk: one folder, which says of each of its files what it must hash to.

receipt.json      everything but the trials, and their names in order
trials/NAME.json  one trial each
summary.txt       for people; report.html beside it, where it was drawn
SHA256SUMS        of all of them, as `sha256sum --check` reads it
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pilotfish.daemon.lab.receipts.receipt_json import decoded, encoded
from pilotfish.daemon.lab.receipts.receipt_types import SCHEMA, Receipt, TrialRecord
from pilotfish.hooks.errors import UsageError

RECEIPT, SUMS, TRIALS = "receipt.json", "SHA256SUMS", "trials"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # of a trial: it becomes a file's name
_SUM = re.compile(r"([0-9a-f]{64})  (\S.*)")


@dataclass(frozen=True, slots=True)
class Damage:
    """A file of a receipt that is not what SHA256SUMS says: changed, missing, or not listed."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


def write_receipt(folder: Path, receipt: Receipt, extras: Mapping[str, str] | None = None) -> None:
    """Write the receipt and `extras`, texts by file name, to a folder that is new or empty.

    Raises UsageError where the folder holds something, or a trial's name cannot be a file's; OSError.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; a receipt gets a folder of its own")
    files = _files(receipt) | {name: text.encode() for name, text in (extras or {}).items()}
    (folder / TRIALS).mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    sums = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    (folder / SUMS).write_text(sums)


def read_receipt(path: Path) -> Receipt:
    """The receipt in the folder `path`, whose sums must fit.

    Raises UsageError where it is none, was damaged (naming the file), or is of another version.
    """
    if damages := damages_of(path):
        listed = "; ".join(map(str, damages[:3]))
        raise UsageError(f"{path} is damaged: {listed}; `pilotfish receipt verify {path}` lists all of it")
    return read_undamaged(path)


def read_undamaged(path: Path) -> Receipt:
    """The receipt in a folder where `damages_of` found nothing: nothing is hashed again. Raises UsageError."""
    try:
        document = json.loads((path / RECEIPT).read_bytes())
        if document["schema"] != SCHEMA:
            raise UsageError(f"{path}: its schema is {document['schema']}, this version reads {SCHEMA}")
        names = [_checked(name) for name in document.pop("trials")]
        trials = [_trial(path / TRIALS / f"{name}.json") for name in names]
        return replace(decoded(Receipt, {**document, "trials": []}), trials=tuple(trials))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path}: not a receipt that this version reads ({error})") from error


def read_trial(reference: str) -> tuple[Receipt, TrialRecord]:
    """The receipt and the trial that `RECEIPT#TRIAL` names. Raises UsageError, listing the trials that there are."""
    folder, _, name = reference.rpartition("#")
    if not folder:
        raise UsageError(f"{reference}: not RECEIPT#TRIAL, such as my-receipt#plain-1")
    receipt = read_receipt(Path(folder))
    if (trial := receipt.trial(name)) is None:
        raise UsageError(f"{folder} has no trial {name!r}; there are {', '.join(t.name for t in receipt.trials)}")
    return receipt, trial


def damages_of(path: Path) -> list[Damage]:
    """Every file that is not as it was written. Raises UsageError where there is no receipt."""
    sums = _sums(path)
    found = []
    for name, digest in sums.items():
        try:
            if hashlib.sha256((path / name).read_bytes()).hexdigest() != digest:
                found.append(Damage(name, "changed since it was written"))
        except OSError as error:
            found.append(Damage(name, f"cannot be read ({error.strerror})"))
    here = {file.relative_to(path).as_posix() for file in path.rglob("*") if not file.is_dir()} - {SUMS}
    found += [Damage(name, "not listed in SHA256SUMS") for name in sorted(here - set(sums))]
    if RECEIPT not in sums:
        found.append(Damage(SUMS, f"does not list {RECEIPT}"))
    return found


def _sums(path: Path) -> dict[str, str]:
    try:
        lines = (path / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no receipt: {SUMS} cannot be read; name the folder that --output wrote") from error
    found = {}
    for line in lines:
        match = _SUM.fullmatch(line)
        if match is None or Path(match[2]).is_absolute() or ".." in Path(match[2]).parts:
            raise UsageError(f"{path}: {SUMS} has a line that is no sum: {line!r:.60}")
        found[match[2]] = match[1]
    return found


def _files(receipt: Receipt) -> dict[str, bytes]:
    names = [_checked(trial.name) for trial in receipt.trials]
    if len(set(names)) != len(names):
        raise UsageError("two trials of a receipt have one name")
    trials = {f"{TRIALS}/{trial.name}.json": _dump_trial(encoded(trial)) for trial in receipt.trials}
    return {RECEIPT: _dump({**encoded(replace(receipt, trials=())), "trials": names}), **trials}


def _checked(name: Any) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UsageError(f"{name!r:.40} cannot be the name of a trial")
    return name


def _trial(path: Path) -> TrialRecord:
    try:
        return decoded(TrialRecord, json.loads(path.read_bytes()))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error


def _dump(document: Any) -> bytes:
    return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()


def _dump_trial(document: Mapping[str, Any]) -> bytes:
    """A line for each field, and for each round."""
    lines = (f" {json.dumps(name)}: {_rows(value)}" for name, value in document.items())
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _rows(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return "[\n" + ",\n".join(f"  {json.dumps(row, allow_nan=False)}" for row in value) + "\n ]"
    return json.dumps(value, allow_nan=False)
