"""A certificate for people: what was found, and in which settings it was looked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pilotfish.daemon.certify.certificate import Certificate
from pilotfish.daemon.certify.lanes import ranges, reference
from pilotfish.daemon.cli.console import out

_WIDE = 1000  # columns where no terminal sets a limit
_UNKNOWN = "-"


def show(certificate: Certificate) -> None:
    """Print it: a summary, the evidence, and a row for each setting that was tried."""
    lane = certificate.lane
    out.print(f"[bold]{escape(certificate.model)}[/]: {escape(certificate.summary())}")
    out.print(f"  engine {lane.setting.engine}: {certificate.engine}", markup=False)
    out.print(
        f"  a plain step takes {certificate.plain_ratio:.2f}x {reference(certificate.reference)}, a prompt "
        f"{certificate.prompt_ratio:.2f}x; with speculation "
        f"{certificate.expected_ratio:.2f}x is expected"
    )
    for regime in certificate.regimes:
        rows = regime["rows"].values()
        out.print(f"  {regime['start']} to {regime['end']} tokens: {min(rows, default=0)} or more rows per width equal")
    for finding in certificate.findings:
        out.print(f"  {finding}", markup=False)
    if lane.max_width == 1:
        out.print(f"  plain decoding only: {lane.reason}", markup=False)
    out.print(f"  settings tried, in {reference(certificate.reference)}:", style="dim", markup=False)
    console = out if out.is_terminal else Console(highlight=False, width=_WIDE)
    console.print(settings_table(certificate), style="dim")
    if certificate.switch_points:
        out.print(f"  kernels switch after {ranges(certificate.switch_points)} tokens of context", style="dim")
    out.print(f"  {certificate.seconds:.0f} s, {'complete' if certificate.complete else 'budget spent'}", style="dim")


def settings_table(certificate: Certificate) -> Table:
    """A row for each setting: its widest lane or why it has none, its prices, and how far from libllama it is."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("", "SETTING", "WIDTHS ALIKE"):
        table.add_column(title, overflow="fold")
    for title in ("STEP", "AT ONCE", "PROMPT", "LOAD", "EXPECTED", "DIVERGENCE"):
        if title != "AT ONCE" or certificate.identity.slots > 1:
            table.add_column(title, justify="right")
    table.add_column("")
    for variant in certificate.variants:
        chosen = variant["chosen"] and certificate.lane.max_width > 1
        cells = _cells(variant, several=certificate.identity.slots > 1)
        table.add_row("*" if chosen else "", *map(escape, cells), style="bold" if chosen else None)
    return table


def _cells(variant: Mapping[str, Any], *, several: bool) -> Iterator[str]:
    lane = min(variant["lanes"], key=lambda lane: lane["expected_ratio"], default=None)
    timed = bool(variant["ms"]) and bool(variant["stock_ms"])
    yield variant["setting"]
    yield (lane["widths"] + _where(lane)) if lane else _UNKNOWN
    yield f"{lane['plain_ratio'] if lane else _step(variant):.2f}x" if timed else _UNKNOWN
    if several:
        yield f"{lane['company_ratio']:.2f}x" if lane else _UNKNOWN
    yield f"{variant['prompt_ratio']:.2f}x" if variant["prefill_tokens_per_second"] else _UNKNOWN
    yield f"{variant['load_seconds']:.1f} s" if variant["load_seconds"] else _UNKNOWN
    yield f"{lane['expected_ratio']:.2f}x" if lane else _UNKNOWN
    yield _UNKNOWN if variant["divergence"] is None else f"{variant['divergence']:.4f}"
    yield variant["trouble"]


def _where(lane: Mapping[str, Any]) -> str:
    return f" up to {lane['max_context']} tokens" if lane["max_context"] else ""


def _step(variant: Mapping[str, Any]) -> float:
    """What a single step takes, in stock's."""
    pairs = [(ms, variant["ms"].get(key)) for key, ms in variant["stock_ms"].items() if key.startswith("1@")]
    stock = sum(theirs for theirs, own in pairs if own)
    return sum(own for _, own in pairs if own) / stock if stock else 1.0
