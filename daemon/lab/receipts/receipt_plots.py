"""A receipt as pictures: rates, acceptance by place, where a round's time goes, and the wait for the first token.

Each is an SVG of its own, letters drawn as paths, so that it looks the same everywhere and refers to nothing outside.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Sequence
from typing import Any

from pilotfish.daemon.lab.receipts.receipt_figures import (
    GroupFigures,
    acceptance_by_position,
    groups_of,
    is_sound,
    plain_step,
    rate_of,
)
from pilotfish.daemon.lab.receipts.receipt_types import Receipt, TrialKind, TrialRecord

MISSING = "no plots: matplotlib is not installed; pip install 'pilotfish[lab]'"

_PLAIN, _DRAFT, _LINE = "#8c8c8c", "#1f77b4", "#d62728"
_PARTS = {
    "verification": "#1f77b4",
    "drafting": "#ff9f40",
    "bridging": "#2ca02c",
    "transport": "#9467bd",
    "overhead": "#bcbcbc",
}
_BAR = 0.6

Draw = Callable[[Receipt, Any], None]


def can_plot() -> bool:
    """Whether matplotlib is here."""
    return importlib.util.find_spec("matplotlib") is not None


def plots(receipt: Receipt) -> dict[str, bytes]:
    """SVG files by title; none of a kind that the receipt has nothing for. matplotlib must be there."""
    drawn: dict[str, Draw] = {"Tokens per second, end to end": _rates}
    if any(group.proposed for group in groups_of(receipt)):
        drawn["Accepted drafts, by their place in the proposal"] = _acceptance
    if any(group.mean_round and group.drafter for group in groups_of(receipt)):
        drawn["What a round takes, and what it may take"] = _costs
    drawn["Time to the first token"] = _first_tokens
    return {title: _svg(receipt, draw) for title, draw in drawn.items()}


def _svg(receipt: Receipt, draw: Draw) -> bytes:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "pilotfish", "svg.fonttype": "path"}):  # the same figures give the same file
        rows = len(groups_of(receipt))
        picture = Figure(figsize=(8.0, 1.9 + 0.42 * max(rows, 4)), layout="constrained")
        panel = picture.subplots()
        panel.spines[["top", "right"]].set_visible(False)
        draw(receipt, panel)
        labelled = panel.get_legend_handles_labels()
        picture.legend(*labelled, loc="outside lower center", ncols=4, frameon=False, fontsize="small")
        file = io.BytesIO()
        picture.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


def _rates(receipt: Receipt, panel: Any) -> None:
    """Bars are medians, dots single answers; answers that diverged are not shown."""
    groups = groups_of(receipt)
    _names(panel, groups)
    for y, group in enumerate(groups):
        panel.barh(y, group.rate or 0.0, _BAR, color=_DRAFT if group.drafter else _PLAIN, alpha=0.75)
        rates = [rate for trial in _sound(receipt, group) if (rate := rate_of(trial)) is not None]
        panel.plot(rates, [y] * len(rates), "o", color="black", markersize=3, alpha=0.6)
        if group.rate is not None:
            panel.annotate(f" median {group.rate:.1f}", (max([*rates, group.rate]), y), va="center", fontsize="small")
    if plain := next((group.rate for group in groups if not group.drafter), None):
        panel.axvline(plain, color=_LINE, linewidth=1, label="plain median")
        asked = plain * (1 + receipt.settings.thresholds.min_gain)
        panel.axvline(asked, color=_LINE, linewidth=1, linestyle=":", label="what promotion asks for")
    panel.margins(x=0.12)
    panel.set_xlabel("committed tokens per second, from the request to the end")


def _acceptance(receipt: Receipt, panel: Any) -> None:
    for group in groups_of(receipt):
        found = acceptance_by_position(_trials(receipt, group))
        if not group.drafter or not found:
            continue
        places = range(1, len(found) + 1)
        shares = [accepted / proposed if proposed else 0.0 for accepted, proposed in found]
        panel.plot(places, shares, marker="o", label=f"{group.title} (n={found[0][1]})")
    panel.set_ylim(-0.03, 1.03)
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.set_xlabel("place in the proposal")
    panel.set_ylabel("accepted of proposed")
    panel.grid(alpha=0.3)


def _costs(receipt: Receipt, panel: Any) -> None:
    """A round gains where its bar ends before its line: the time of plain steps for the ids that it committed."""
    groups = [group for group in groups_of(receipt) if group.mean_round]
    step = plain_step(receipt)
    _names(panel, groups)
    there = {part: colour for part, colour in _PARTS.items() if any(_part(g, part) for g in groups)}
    for y, group in enumerate(groups):
        left = 0.0
        for part, colour in there.items():
            width = 1000 * _part(group, part)
            panel.barh(y, width, _BAR, left=left, color=colour, label=part if y == 0 else None)
            left += width
        if step and group.mean_round:
            gain = 1000 * step * group.mean_round.committed
            label = "gain line: plain time of the same tokens" if y == 0 else None
            panel.plot([gain, gain], [y - _BAR / 2 - 0.1, y + _BAR / 2 + 0.1], color=_LINE, linewidth=2, label=label)
    panel.set_xlabel("milliseconds of a mean round")


def _part(group: GroupFigures, name: str) -> float:
    """Seconds; 0 of a part that nothing measured."""
    return getattr(group.mean_round.times, name) or 0.0 if group.mean_round else 0.0


def _first_tokens(receipt: Receipt, panel: Any) -> None:
    groups = groups_of(receipt)
    _names(panel, groups)
    for y, group in enumerate(groups):
        waits = [1000 * trial.times.first_token for trial in _sound(receipt, group)]
        panel.plot(waits, [y] * len(waits), "o", color=_DRAFT if group.drafter else _PLAIN, markersize=4, alpha=0.7)
        if group.first_token:
            p95 = 1000 * group.first_token.seconds
            label = "p95, nearest rank" if y == 0 else None
            panel.plot([p95, p95], [y - 0.3, y + 0.3], color=_LINE, linewidth=2, label=label)
            panel.annotate(f"  n={group.first_token.n}", (p95, y), va="center", fontsize="small")
    panel.set_xlim(left=0)
    panel.margins(x=0.12)
    panel.set_xlabel("milliseconds from the request to the first arrival; every answer reads its prompt")


def _names(panel: Any, groups: Sequence[GroupFigures]) -> None:
    panel.set_yticks(range(len(groups)), [group.title for group in groups])
    panel.set_ylim(len(groups) - 0.4, -0.6)


def _trials(receipt: Receipt, group: GroupFigures) -> list[TrialRecord]:
    kinds = (TrialKind.PLAIN, TrialKind.DRAFT)
    key = (group.drafter, group.length)
    return [t for t in receipt.trials if t.kind in kinds and (t.drafter, t.length) == key]


def _sound(receipt: Receipt, group: GroupFigures) -> list[TrialRecord]:
    return [trial for trial in _trials(receipt, group) if is_sound(trial)]
