"""What `pilotfish demo` says at the end: every prompt in its group, what was saved in all, and what to expect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table

from pilotfish.daemon.lab.demonstration import FORMAT, MODEL, Comparison, time_ratio

GROUPS = {"copy": "repeats its input", "open": "writes freely"}
EVEN = 0.02  # a difference that no one run can tell from none


def results_table(results: Sequence[Comparison]) -> Table:
    """Every prompt, by group, each group with its sum; at most 80 columns wide."""
    title = f"{MODEL}: the same prompts, plain and with drafts"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for heading in ("the answer", "sampling"):
        table.add_column(heading, no_wrap=True)
    for heading in ("tokens", "plain\ntok/s", "drafts\ntok/s", "ratio", "drafts\naccepted", "ids"):
        table.add_column(heading, justify="right", no_wrap=True)
    for kind, label in GROUPS.items():
        group = [result for result in results if result.kind == kind]
        if group:
            table.add_row(f"[bold]{label}[/]")
            for result in group:
                table.add_row(*_cells(result))
            saved = sum(result.plain_seconds - result.speculative_seconds for result in group)
            table.add_row(f"  {_saved(saved)}", "", "", "", "", f"[bold]{time_ratio(group):.2f}x[/]")
            table.add_section()
    return table


def verdict(results: Sequence[Comparison], equal: bool) -> Iterator[RenderableType]:
    """Whether the ids are equal, the time saved in all, and one sentence on what to expect."""
    yield "[green]every id is equal[/]" if equal else "[red]ids differ[/]: speculation changed an answer"
    plain = sum(result.plain_seconds for result in results)
    drafts = sum(result.speculative_seconds for result in results)
    yield f"{plain:.1f} s of decoding became {drafts:.1f} s: {_saved(plain - drafts)}, {time_ratio(results):.2f}x"
    yield _outlook(results)


def _outlook(results: Sequence[Comparison]) -> str:
    if all(result.acceptance is None for result in results):
        return (
            "No draft was verified in any answer: both columns are plain decoding, and what differs is the machine. It "
            "may have been too busy to find forwards that agree while the model loaded; try again when it is idle, or "
            "ask `pilotfish explain` beside `pilotfish serve --demo`."
        )
    said = [
        f"answers that {'repeat their input' if kind == 'copy' else 'write freely'} {_as_fast(time_ratio(group))}"
        for kind in GROUPS
        if (group := [result for result in results if result.kind == kind])
    ]
    return (
        f"On this machine, with a small model in {FORMAT}, {' and '.join(said)}; what a larger one gains depends on "
        "what blocks of tokens cost it here, which `pilotfish certify MODEL` measures."
    )


def _as_fast(ratio: float) -> str:
    if abs(ratio - 1) <= EVEN:
        return "take as long as without drafts"
    return f"come {ratio:.2f} times as fast" if ratio > 1 else f"are slower, at {ratio:.2f} of the plain speed"


def _saved(seconds: float) -> str:
    return f"{seconds:.1f} s saved" if seconds >= 0 else f"[red]{-seconds:.1f} s lost[/]"


def _cells(result: Comparison) -> list[str]:
    acceptance = "-" if result.acceptance is None else f"{result.acceptance:.0%}"
    return [
        f"  {result.name}",
        result.mode,
        str(result.tokens),
        f"{result.plain_tps:.1f}",
        f"{result.speculative_tps:.1f}",
        f"{result.ratio:.2f}x",
        acceptance,
        "[green]equal[/]" if result.equal else "[red]DIFFER[/]",
    ]
