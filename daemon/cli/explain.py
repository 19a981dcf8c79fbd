"""`pilotfish explain`: what a running model's controller has measured, and what it makes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import click
from rich.markup import escape
from rich.table import Table

from pilotfish.daemon.cli.console import out
from pilotfish.daemon.cli.status import drafter_lines
from pilotfish.hooks.errors import UsageError, WorldError

_ANSWER_WITHIN = 10.0  # seconds
_ROUNDS = 12  # of the last ones, in the table


@click.command("explain")
@click.argument("model", required=False)
@click.option("--port", type=click.IntRange(1, 65535), help="The runner's port, when no daemon knows it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array instead of tables.")
def command(model: str | None, port: int | None, as_json: bool) -> None:
    """Show what forwards cost, how often drafts are right, what is chosen, and the account, for each loaded model."""
    found = asyncio.run(_explained(model, port))
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    for one in found:
        _show(one)


async def _explained(model: str | None, port: int | None) -> list[dict[str, Any]]:
    ports = [port] if port is not None else await _ports(model)
    timeout = aiohttp.ClientTimeout(total=_ANSWER_WITHIN)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        return [await _ask(session, port) for port in ports]


async def _ports(model: str | None) -> list[int]:
    """Where the runners of `model`, or all of them, listen. Raises UsageError when there are none."""
    from pilotfish.daemon.config import files
    from pilotfish.daemon.control.address import socket_path
    from pilotfish.daemon.control.control_client import ask_status
    from pilotfish.manifests.names import ModelName

    place = socket_path(files.load_or_last_good())
    status = await ask_status(place)
    if status is None:
        raise UsageError(f"no daemon answers at {place}; start one (pilotfish daemon), or name the runner's --port")
    wanted = ModelName.parse(model).folded if model else None
    runners = [runner for runner in status["runners"] if wanted is None or wanted in _names(runner)]
    if not runners:
        loaded = ", ".join(runner["model"] for runner in status["runners"]) or "none"
        raise UsageError(
            f"{model or 'no model'} is not loaded by pilotfish; loaded now: {loaded}. Ask it something first"
        )
    return [runner["port"] for runner in runners]


def _names(runner: Mapping[str, Any]) -> set[object]:
    from pilotfish.hooks.errors import InvalidModelName
    from pilotfish.manifests.names import ModelName

    folded: set[object] = set()
    for name in (runner["model"], *runner["aliases"]):
        try:
            folded.add(ModelName.parse(name).folded)
        except InvalidModelName:  # a bare file
            folded.add(name)
    return folded


async def _ask(session: aiohttp.ClientSession, port: int) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}/pilotfish/explain"
    try:
        async with session.get(url) as response:
            body = await response.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise WorldError(f"no runner answers on port {port}: {error or type(error).__name__}") from error
    if response.status == 503:
        raise WorldError(f"the runner on port {port} is still loading its model; ask again in a moment")
    if response.status != 200 or not isinstance(body, dict):
        raise WorldError(f"port {port} is no pilotfish runner of this version (status {response.status})")
    return body


def _show(one: Mapping[str, Any]) -> None:
    lane, costs, request, totals = one["lane"], one["model_of_costs"], one["request"], one["totals"]
    out.print(f"[bold]{escape(one['model'])}[/]: {one['state']} {escape(one['reason'])}".rstrip(), soft_wrap=True)
    _say(f"lane {lane['name']}, parity {lane['parity']}, widths up to {lane['widths'][-1]} {lane['reason']}".rstrip())
    _say(f"{totals['requests']} answers, {totals['committed']} tokens, {totals['saved_seconds']:.2f} s saved")
    for line in drafter_lines(one["pool"]):
        _say(line)
    _titled("a forward costs", _cost_table(costs["costs"]))
    _say(f"on top of that {_ms(costs['per_token'])} per token, whatever the width")
    for drafter in costs["drafts"]:
        took = ", ".join(f"{each['tokens']} tokens {_ms(each['seconds'])}" for each in drafter["proposals"])
        _say(f"{drafter['drafter']} takes for a proposal of up to: {took}; it saved {drafter['won']:.2f} s so far")
    if costs["acceptance"]:
        _titled("drafts are right", _acceptance_table(costs["acceptance"]))
    if request:
        _show_request(request)
    if costs["rounds"]:
        _titled("the last rounds", _rounds_table(costs["rounds"][-_ROUNDS:]))


def _show_request(request: Mapping[str, Any]) -> None:
    _say(
        f"account of the last answer: {1000 * request['gain']:+.1f} ms against plain decoding; it may fall to "
        f"{-1000 * request['allowed_loss']:.1f} ms"
    )
    if request["parked"]:
        _say(f"drafters rest for {request['parked']} more tokens")
    if request["choice"]:
        title = f"of {request['proposed']} tokens proposed with this confidence so many would be verified now"
        _titled(f"{title} (0: a plain step)", _choice_table(request))


def _cost_table(costs: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("context", "width", "ms", "plain steps", "measured")
    for cost in costs:
        low, high = cost["context"]
        here = cost["measured_here"]
        table.add_row(
            f"{low} to {high}",
            str(cost["width"]),
            f"{1000 * cost['seconds']:.2f}" if here else "-",
            "-" if cost["plain_steps"] is None else f"{cost['plain_steps']:.2f}",
            f"{cost['samples']} times" if here else "by the certificate",
        )
    return table


def _acceptance_table(acceptance: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("drafter", "when it says", "measured", "tokens seen")
    for row in acceptance:
        low, high = row["confidence"]
        table.add_row(escape(row["drafter"]), f"{low:.0%} to {high:.0%}", f"{row['rate']:.0%}", f"{row['seen']:.0f}")
    return table


def _choice_table(request: Mapping[str, Any]) -> Table:
    levels = list(dict.fromkeys(choice["confidence"] for choice in request["choice"]))
    table = _table("drafter", *(f"{level:.0%}" for level in levels))
    for drafter in dict.fromkeys(choice["drafter"] for choice in request["choice"]):
        row = [str(choice["verify"]) for choice in request["choice"] if choice["drafter"] == drafter]
        table.add_row(escape(drafter), *row)
    return table


def _rounds_table(rounds: Sequence[Mapping[str, Any]]) -> Table:
    headings = ("at token", "drafter", "proposed", "accepted", "committed", "draft ms", "verify ms", "all ms")
    table = _table(*headings)
    for one in rounds:
        counts = (str(one[key]) for key in ("proposed", "accepted", "committed"))
        times = (f"{1000 * one[key]:.2f}" for key in ("draft_seconds", "verify_seconds", "seconds"))
        table.add_row(str(one["position"]), escape(one["drafter"] or "plain"), *counts, *times)
    return table


def _titled(title: str, table: Table) -> None:
    out.print(f"\n[bold]{title}[/]", soft_wrap=True)  # a table's own title is folded to the table's width
    out.print(table)


def _table(*headings: str) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="left" if i == 0 else "right", no_wrap=True)
    return table


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms"


def _say(text: str) -> None:
    out.print(text, markup=False, soft_wrap=True)
