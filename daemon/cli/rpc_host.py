"""`pilotfish rpc-host`: compute layers of models that other machines load."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pilotfish.daemon.cli.console import err
from pilotfish.hooks.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from pilotfish.daemon.rpchost.far_host import FarHost
    from pilotfish.daemon.rpchost.far_listening import FarAddress, Promised
    from pilotfish.daemon.rpchost.far_process import FarProcess
    from pilotfish.hooks.far_end import ComputesForOthers, FarEndOptions

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command("rpc-host")
@click.option("--host", default="", help="Where to listen, as HOST:PORT. Default: 127.0.0.1:50052.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Default: as many as there are physical cores.")
@click.option("--memory", type=click.IntRange(1), metavar="MIB", help="What models may take on each device.")
@click.option("--cache", type=_FOLDER, metavar="DIR", help="Keep weights there, so that they are sent once only.")
@click.option("--device", "devices", multiple=True, metavar="NAME", help="By ggml's name, such as CPU; default: GPUs.")
@click.option("--libllama", type=_FOLDER, metavar="DIR", help="What `pilotfish rpc-build` made, or Ollama's folder.")
@click.option("--i-know", "knows", is_flag=True, help="Listen where others can connect, who may then do anything.")
@click.option("--json", "as_json", is_flag=True, help="Say where it listens as one line of JSON.")
def command(
    host: str,
    threads: int | None,
    memory: int | None,
    cache: Path | None,
    devices: tuple[str, ...],
    libllama: Path | None,
    knows: bool,
    as_json: bool,
) -> None:
    """Compute layers of models that another machine loads, until interrupted; one such machine at a time.

    On that machine: [engine] rpc = ["this-machine:50052"], or what a tunnel makes of it.
    """
    from pilotfish.daemon.certify.device import device_name
    from pilotfish.daemon.config.paths import cache_dir, state_dir
    from pilotfish.daemon.rpchost.far_listening import Promised, parse_address
    from pilotfish.daemon.rpchost.rpc_building import FOLDER
    from pilotfish.hooks.far_end import FarEndOptions

    address = parse_address(host, knows)
    built = cache_dir() / FOLDER
    wanted = FarEndOptions(
        port=0,  # one that is free when the process starts
        threads=threads,
        memory=memory << 20 if memory else None,
        cache=_own_folder(cache),
        devices=devices,
        folder=libllama or (built if built.is_dir() else None),
        state_dir=state_dir(),
    )
    promised = Promised(device_name(), wanted.memory, cache is not None)
    asyncio.run(_serve(_verifier(), wanted, address, promised, as_json))


async def _serve(
    verifier: ComputesForOthers, wanted: FarEndOptions, address: FarAddress, promised: Promised, as_json: bool
) -> None:
    from dataclasses import replace

    from pilotfish.daemon.drafthost.listening import until_told
    from pilotfish.daemon.processes.ports import free_port
    from pilotfish.daemon.rpchost.far_host import FarHost
    from pilotfish.daemon.rpchost.far_listening import far_listening
    from pilotfish.daemon.rpchost.far_process import FarProcess

    async def start() -> FarProcess:
        port = free_port()
        return await FarProcess.start(verifier.far_end(replace(wanted, port=port)), port)

    host = FarHost(start)
    async with until_told() as told, far_listening(host, address, promised) as bound:
        await _say(host, bound, as_json)
        await told.wait()
    if not as_json:
        err.print("The far end is closed.", style="dim")


async def _say(host: FarHost, bound: FarAddress, as_json: bool) -> None:
    if as_json:
        said = {"endpoint": bound.endpoint, "protocol": host.protocol, **host.about, "pid": os.getpid()}
        click.echo(json.dumps(said))
        return
    devices = ", ".join(f"{device['name']} ({device['free'] >> 20} MiB free)" for device in await host.devices())
    click.echo(f"A far end at {bound.endpoint}: {host.about['engine']}, RPC {host.protocol}, on {devices}.")
    click.echo(f"This protocol has no password. From the near end's machine: {bound.tunnel}")
    click.echo(f"How it stands: curl http://{bound.endpoint}/health")


def _verifier() -> ComputesForOthers:
    from pilotfish.daemon.config.files import load_or_last_good
    from pilotfish.daemon.config.types import STOCK_ENGINE
    from pilotfish.daemon.registry.chosen_verifier import chosen_verifier
    from pilotfish.daemon.registry.registry import Registry
    from pilotfish.hooks.protocols import ComputesForOthers

    verifier = chosen_verifier(Registry.load(load_or_last_good()), STOCK_ENGINE)
    if not isinstance(verifier, ComputesForOthers):
        raise EngineError(f"the verifier {verifier.name!r} of a plugin computes for nobody else; remove the plugin")
    return verifier


def _own_folder(folder: Path | None) -> Path | None:
    """The folder, made if need be. Raises ConfigError where others can write: weights are read from it unchecked."""
    if folder is None:
        return None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise ConfigError(f"--cache: others may write to {folder}; name a folder of your own, or: chmod 700 {folder}")
    return folder.absolute()
