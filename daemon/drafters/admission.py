"""Whether a drafter fits in memory beside its target, and whether it must go again.

A drafter is a convenience: it may only have memory that nobody needs. So its weights, its cache and a margin must fit
into what is available after the target has got all it may ever ask for, which is its weights and its *full* context's
cache. Of those the system counts two parts as available although they are spoken for: weights that are mapped from
their file look like cached files, and a cache that was asked for but not yet touched does not look used at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.daemon.drafters.memory_bounds import CPU, Bound
from pilotfish.hooks.errors import AdmissionRefused
from pilotfish.hooks.types import Footprint

MARGIN = 0.05  # of the bound's total
LEAST_MARGIN, MOST_MARGIN = 128 << 20, 1 << 30  # bytes
KEPT = 0.5  # of the margin; below that the drafters go. The other half keeps them from coming and going


@dataclass(frozen=True, slots=True)
class TargetMemory:
    """What the target may ask for, in bytes. `taken` is what of it the system counts as used already.

    Measure `taken` once, as the growth of `memory_bounds.private_bytes()` while the target was loaded; later the
    drafters' memory would be counted with it. Where nothing was measured it is 0, which is the careful guess.
    """

    name: str
    weights: int
    cache: int  # for its whole context
    taken: int = 0
    device: str = CPU

    @property
    def pending(self) -> int:
        """What it may still take of the memory that looks available."""
        return max(0, self.weights + self.cache - max(0, self.taken))


@dataclass(frozen=True, slots=True)
class _Account:
    """One bound's arithmetic."""

    bound: Bound
    need: int
    reserved: int

    @property
    def margin(self) -> int:
        return margin(self.bound.total)

    @property
    def missing(self) -> int:
        """Bytes short; at most 0 when it fits."""
        return self.need + self.margin + self.reserved - self.bound.available


def margin(total: int) -> int:
    """Bytes to leave free of a memory of `total` bytes."""
    return max(LEAST_MARGIN, min(int(MARGIN * total), MOST_MARGIN))


def admit(
    drafter: str,
    footprint: Footprint,
    target: TargetMemory,
    bounds: Sequence[Bound],
    *,
    others: Sequence[Footprint] = (),
) -> None:
    """Return if `footprint` fits within every one of `bounds`, which are those of its device.

    `others` are the drafters that are loaded already. Raises AdmissionRefused with the sum of the tightest bound.
    """
    accounts = [_Account(bound, footprint.total, _reserved(bound, target, others)) for bound in bounds]
    tightest = max(accounts, key=lambda account: account.missing, default=None)
    if tightest is not None and tightest.missing > 0:
        raise AdmissionRefused(_refusal(drafter, footprint, target, tightest, others))


def pressed(target: TargetMemory, bounds: Sequence[Bound], *, others: Sequence[Footprint] = ()) -> str:
    """Why the loaded drafters, `others`, should be unloaded now; empty while they may stay.

    They go when less than half of the margin is left, so that one which was just admitted has room to breathe.
    """
    for bound in bounds:
        reserved = _reserved(bound, target, others)
        if bound.available - reserved < KEPT * margin(bound.total):
            claim = f", and {size(reserved)} of that are spoken for" if reserved else ""
            return (
                f"memory runs short: {size(bound.available)} of {bound.what} ({size(bound.total)}) are available"
                f"{claim}; the target comes first"
            )
    return ""


def _reserved(bound: Bound, target: TargetMemory, others: Sequence[Footprint]) -> int:
    """What looks available but is not: for the target, and mapped weights of drafters that are loaded."""
    return target.pending + sum(other.weights for other in others) if bound.lends else 0


def _refusal(
    drafter: str, footprint: Footprint, target: TargetMemory, account: _Account, others: Sequence[Footprint]
) -> str:
    bound = account.bound
    return (
        f"{drafter} does not fit: weights {size(footprint.weights)} + cache {size(footprint.cache)} + margin "
        f"{size(account.margin)} = {size(account.need + account.margin)}, but of {bound.what} ({size(bound.total)}) "
        f"{size(bound.available)} are available{_claims(target, account, others)}: {size(account.missing)} are "
        "missing. Choose a smaller drafter, give it or the target a shorter context, or free memory"
    )


def _claims(target: TargetMemory, account: _Account, others: Sequence[Footprint]) -> str:
    """What of the available memory is spoken for, and what that leaves."""
    if not account.reserved:
        return ""
    mapped = f", other drafters map {size(account.reserved - target.pending)}" if others else ""
    left = max(0, account.bound.available - account.reserved)
    return (
        f", of which {target.name} still may take {size(target.pending)} (weights {size(target.weights)} + full "
        f"context {size(target.cache)} - {size(max(0, target.taken))} taken){mapped}, so that {size(left)} are left"
    )


def size(count: int) -> str:
    """Bytes for people: `92 MiB`, from 10 GiB on in GiB; in one unit as far as a sum goes."""
    return f"{count / (1 << 30):.1f} GiB" if count >= 10 << 30 else f"{count / (1 << 20):.0f} MiB"
