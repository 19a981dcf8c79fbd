"""`pilotfish status`: the daemon, the loaded models, and what is in force for which model."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from pilotfish.daemon.cli.console import out
from pilotfish.daemon.drafters.admission import size
from pilotfish.manifests.store import Store

_COLOURS = {"active": "green", "parked": "yellow", "plain": "yellow", "off": "red"}


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
def command(as_json: bool, root: Path | None) -> None:
    """Show whether drafts are in use, for which models, and why not where they are not."""
    from pilotfish.daemon.control.overview import overview

    found = asyncio.run(overview(Store.find(root)))
    if as_json:
        click.echo(json.dumps(found, indent=2, default=str))
        return
    _show_daemon(found)
    if found["runners"]:
        out.print(_runners(found["runners"]))
    for runner in found["runners"]:
        for line in drafter_lines(runner.get("pool", {})):
            _say(f"         {line} ({runner['model']})")
        if where := runner.get("prompts"):
            _say(f"         long prompts: read {where} ({runner['model']})")
        if line := conversations_line(runner.get("conversations", {})):
            _say(f"         {line} ({runner['model']})")
    problems = [*found["engines"]["problems"], *found["plugins"].get("problems", ())]
    problems += [problem for runner in found["runners"] for problem in runner["problems"]]
    for problem in sorted(set(problems)):
        out.print(f"         [red]problem:[/] {escape(problem)}", soft_wrap=True)
    if found["models"]:
        out.print(_models(found["models"]))
    _show_stock(found["stock"])


def _show_daemon(found: Mapping[str, Any]) -> None:
    daemon, config = found["daemon"], found["config"]
    where = daemon["socket"] or "no usable socket path"
    state = f"runs, pid {daemon['pid']}" if daemon["running"] else "does not run; models use the config as they load"
    _say(f"daemon   {state} ({where})")
    _say(f"config   {config['path'] or 'the defaults; no file'}")
    if config["error"]:
        out.print(f"         [red]not in force:[/] {escape(config['error'])}", soft_wrap=True)
    if not config["in_force"]["speculation"]["enabled"]:
        _say("         speculation is switched off; switch it on with: pilotfish on")
    engines = found["engines"]
    _say(f"engine   {', '.join(engines['here']) or 'none'} (choice {engines['choice']})")
    for far_end in found["far_ends"]:
        _say(f"far end  {far_end_line(far_end)}")
    if folders := found["plugins"]["folders"]:
        generation = found["plugins"].get("generation")
        _say(f"plugins  {', '.join(folders)}" + (f" (generation {generation})" if generation else ""))


def far_end_line(seen: Mapping[str, Any]) -> str:
    """What computes there, its memory, and whom it serves; or what is in the way."""
    if seen["trouble"] and not seen["busy"]:
        return str(seen["trouble"])
    free, total = (sum(device[key] for device in seen["devices"]) for key in ("free", "total"))
    serves = f", serves {seen['busy']}" if seen["busy"] else ""
    return f"{seen['endpoint']}: {size(free)} of {size(total)} free ({seen['pin']}){serves}"


def _runners(runners: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("RUNNER", "PORT", "LANE", "PARITY", "DRAFTERS", "STATE", "REQUESTS", "ACCEPTED", "SAVED")
    for runner in runners:
        totals, state = runner["totals"], runner["state"]
        table.add_row(
            escape(f"{runner['model']} ({runner['pid']})"),
            str(runner["port"]),
            escape(runner["lane"]),
            runner["parity"],
            escape(", ".join(runner["drafters"])),
            f"[{_COLOURS.get(state, 'default')}]{state}[/] {escape(runner['reason'])}",
            str(totals["requests"]),
            _share(totals),
            f"{totals['saved_seconds']:.1f} s",
        )
    return table


def drafter_lines(pool: Mapping[str, Mapping[str, str]]) -> list[str]:
    """A line for every drafter of which there is something to say besides that it is ready."""
    return [
        f"drafter {name}: {found['state']}" + (f": {found['about']}" if found["about"] else "")
        for name, found in pool.items()
        if found["state"] != "ready" or found["about"]
    ]


def conversations_line(found: Mapping[str, Any]) -> str:
    """What a runner remembers beside its slot; empty when it does not say."""
    if not found:
        return ""
    if found["obstacle"]:
        return f"conversations: only the last one is kept: {found['obstacle']}"
    counts = (("hits", "taken up again"), ("forgotten", "forgotten"), ("refused", "too large"), ("failed", "failed"))
    became = ", ".join(f"{found[key]} {what}" for key, what in counts if found[key])
    held = f"{found['entries']} beside the last one ({found['bytes'] >> 20} of {found['room'] >> 20} MiB)"
    return f"conversations: {held}{_on_disk(found)}" + (f"; {became}" if became else "")


def _on_disk(found: Mapping[str, Any]) -> str:
    if not found.get("disk_room"):
        return ""
    taken = f", {found['disk_hits']} taken up from there" if found["disk_hits"] else ""
    failed = f", {found['disk_failed']} failed there" if found["disk_failed"] else ""
    size = f"{found['disk_bytes'] >> 20} of {found['disk_room'] >> 20} MiB"
    return f", {found['disk_entries']} on disk ({size}){taken}{failed}"


def _models(models: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("MODEL", "DRAFTS", "DRAFTERS", "LAST LAUNCH", "REQUESTS", "ACCEPTED", "SAVED")
    for model in models:
        totals = model["totals"]
        table.add_row(
            escape(model["name"]),
            "[green]on[/]" if model["enabled"] else "[red]off[/]",
            escape(", ".join(model["drafters"])),
            escape(_launch(model["decision"])),
            str(totals["requests"]) if totals else "-",
            _share(totals) if totals else "-",
            f"{totals['saved_seconds']:.1f} s" if totals else "-",
        )
    return table


def _show_stock(on_stock: Sequence[Mapping[str, Any]]) -> None:
    if on_stock:
        _say("on the stock llama-server:")
    for one in on_stock:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["since"]))
        _say(f"  {one['model'] or '(no model)'}, since {since}: {one['reason']}")


def _launch(decision: Mapping[str, Any] | None) -> str:
    if decision is None:
        return "-"
    return "pilotfish" if decision["decision"] == "runner" else "stock"


def _share(totals: Mapping[str, Any]) -> str:
    return "-" if totals["acceptance"] is None else f"{totals['acceptance']:.0%}"


def _table(*titles: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def _say(text: str) -> None:
    out.print(text, markup=False, soft_wrap=True)
