"""Whether a launch of llama-server is for pilotfish's runner or for the stock server, and why.

This has to be quick (Ollama waits for it at every load), so it looks at names, digests and what is remembered about
files, and imports nothing that brings numpy or an engine along. What takes longer, such as hashing a weight file for
the first time, the runner does while it loads; it still can become the stock server then.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pilotfish.daemon.certify.left_to_stock import Left, LeftToStock
from pilotfish.daemon.config import files as configuration
from pilotfish.daemon.config.types import ENGINES, STOCK_ENGINE, Config
from pilotfish.daemon.runner.launch_arguments import Launch, model_path, parse
from pilotfish.hooks.environment import switched_off, variable
from pilotfish.hooks.errors import PilotfishError
from pilotfish.manifests.blob_users import Blob, blob_of
from pilotfish.manifests.remembered import Remembered, stamp_of
from pilotfish.ollama_overlay.attempts import Attempts
from pilotfish.ollama_overlay.circumstances import circumstances
from pilotfish.ollama_overlay.ollama_libraries import choose
from pilotfish.ollama_overlay.pinned import PinnedManifests
from pilotfish.ollama_overlay.stock import stock_environment, stock_server

log = logging.getLogger("pilotfish.shim")

ENGINE_PACKAGES = {STOCK_ENGINE: "llama_cpp", "ik": "ik_llama_cpp"}


@dataclass(frozen=True, slots=True)
class Decision:
    """`runner` or stock, with the reason for a person; `model` is its name, or its file where it has none.

    `ollama_libraries` asks for the runner, or whatever certifies, on the libllama of the user's own Ollama. `certify`
    are the arguments of a certification that may find more while stock idles (`beside_stock.py`), if one is due.
    """

    runner: bool
    model: str
    reason: str
    ollama_libraries: bool = False
    certify: tuple[str, ...] = ()


def decide(
    argv: Sequence[str],
    state_dir: Path,
    load_config: Callable[[], Config] = configuration.load_or_last_good,
    has_package: Callable[[str], bool] = lambda name: importlib.util.find_spec(name) is not None,
) -> Decision:
    """The decision for a launch with arguments `argv`. Raises nothing: what goes wrong is a reason for stock."""
    model = "?"
    try:
        path = model_path(argv)
        model = path.name
        blob = blob_of(path)
        model = _name(path, blob)
        return _decide(argv, model, path, blob, state_dir, load_config(), has_package)
    except PilotfishError as error:
        return Decision(False, model, str(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the floor is plain Ollama, whatever happened
        return Decision(False, model, f"deciding failed ({type(error).__name__}: {error})")


def model_name(path: Path) -> str:
    """What a launch of this weight file is called: its models' names, else the file's. Opens every manifest."""
    return _name(path, blob_of(path))


def _name(path: Path, blob: Blob | None) -> str:
    if blob is None:
        return path.name
    return ", ".join(user.name.short for user in blob.users) or blob.digest.short


def _decide(
    argv: Sequence[str],
    model: str,
    path: Path,
    blob: Blob | None,
    state_dir: Path,
    config: Config,
    has_package: Callable[[str], bool],
) -> Decision:
    if switched_off("PILOTFISH"):  # the script looks too, before it starts Python
        return Decision(False, model, f"PILOTFISH={variable('PILOTFISH')} is set")
    own = config.for_models([user.name.full for user in blob.users] if blob else [])
    far = bool(own.engine.rpc)  # no stock server reaches far ends, and what is spread over them is too large for here
    if not far and (reason := _switched_off(config, blob)):
        return Decision(False, model, reason)
    if not path.is_absolute():
        return Decision(False, model, f"{path} is a relative path; give OLLAMA_MODELS to Ollama as an absolute one")
    launch = parse(argv)
    config = own
    engines = [engine for engine in config.engines if has_package(ENGINE_PACKAGES[engine])]
    if not engines:
        packages = " or ".join(ENGINE_PACKAGES[engine] for engine in config.engines)
        remedies = ", or: ".join(ENGINES[engine] for engine in config.engines)
        return Decision(False, model, f"{packages} is not installed; run: {remedies}")
    crashed = "" if far else Attempts(state_dir, path).reason()
    if reason := _damaged(path, blob, state_dir) or crashed or _changed(blob, state_dir):
        return Decision(False, model, reason)
    runner = _runner(model, config, engines, state_dir)
    if far:
        return replace(runner, reason=f"{runner.reason}, over {', '.join(config.engine.rpc)}")
    if (found := _left(launch, config, state_dir)) is None:
        return runner
    under, left = found
    due = runner.runner and left.due and not switched_off("PILOTFISH_CERTIFY")
    certify = (str(launch.model), under, str(config.engine.certify_idle_s)) if due else ()
    return Decision(False, model, left.reason, runner.ollama_libraries, certify)


def _runner(model: str, config: Config, engines: Sequence[str], state_dir: Path) -> Decision:
    """The runner, on the libraries that the config names if they fit, else on those that are there."""
    reason, server = "speculation is on", stock_server()
    if config.why_not_chosen:
        reason += f", although {config.engine.choice} was chosen: {config.why_not_chosen}"
    others = ", ".join(engine for engine in engines if engine != STOCK_ENGINE)
    if STOCK_ENGINE not in engines:
        return Decision(True, model, f"{reason}, with the engine {others}")
    if server is None:
        return Decision(True, model, reason)
    libllama = choose(config.engine.libllama, Path(server).parent, state_dir)
    if not libllama.usable and others:
        return Decision(True, model, f"{reason}, with the engine {others}: {libllama.remark}")
    if not libllama.usable:
        return Decision(False, model, libllama.remark)
    return Decision(True, model, f"{reason}, with {libllama.remark}", ollama_libraries=libllama.ollama)


def _switched_off(config: Config, blob: Blob | None) -> str:
    """Why the config says no; where models share a weight file, one that is off is enough."""
    where = config.path or "the config"
    if not config.speculation.enabled and not config.models:
        return f"speculation is switched off in {where}"
    names = [user.name.full for user in blob.users] if blob else []
    off = [name for name in names if not config.for_model(name).speculation.enabled]
    if off or (not names and not config.speculation.enabled):
        return f"speculation is switched off in {where}" + (f" for {off[0]}" if off else "")
    return ""


def _damaged(path: Path, blob: Blob | None, state_dir: Path) -> str:
    """Why the file cannot be what its name says, if it was hashed in its present state."""
    known = Remembered(state_dir).get(path, "sha256", stamp_of(path))
    if blob is None or known in (None, blob.digest.hex):
        return ""
    return f"{path} was damaged: its bytes hash to {known}; remove it and pull the model again"


def _left(launch: Launch, config: Config, state_dir: Path) -> tuple[str, Left] | None:
    """Under which circumstances an earlier launch like this one ended at the stock server, and why, if that holds."""
    verdicts, server = LeftToStock(state_dir, launch.model), stock_server()
    if verdicts.newest() is None:  # most models: no need to look at engines
        return None
    packages = ENGINE_PACKAGES.values()
    under = circumstances(launch, config, stock_environment(), packages, Path(server) if server else None)
    left = verdicts.find(under)
    return (under, left) if left else None


def _changed(blob: Blob | None, state_dir: Path) -> str:
    """Why the models that use the file are not what was pinned; the new pins are taken on the way."""
    if blob is None:
        return ""
    pinned = PinnedManifests(state_dir)
    mismatch = pinned.mismatch(blob.users)
    try:
        pinned.pin(blob.users)
    except OSError as error:  # a full or read-only disk: what cannot be pinned anew must not be refused for ever
        log.warning("%s cannot be written (%s): models are not compared with their pins", state_dir, error.strerror)
        return ""
    return mismatch and f"{mismatch}; it is pinned anew, and speculates from the next load on"
