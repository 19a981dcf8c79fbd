"""What the front is told from outside: where to listen, whom to answer, how long models stay."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pilotfish.daemon.front.durations import FOREVER, lasting, parse_go_duration
from pilotfish.daemon.http.json_text import shown
from pilotfish.daemon.http.tunnel import ServerAddress
from pilotfish.hooks.environment import variable
from pilotfish.hooks.errors import ConfigError, RequestError

log = logging.getLogger("pilotfish.front")

DEFAULT_PORT = 11435  # Ollama's neighbour
OLLAMA_PORT = 11434
EXAMPLE_UPSTREAM = f"http://127.0.0.1:{OLLAMA_PORT}"
_COUNT = re.compile("[0-9]{1,9}")
_SECONDS = re.compile("-?[0-9]+")
_SCHEME_PORTS = {"http": 80, "https": 443}
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "0.0.0.0")
_APP_ORIGINS = ("app://*", "file://*", "tauri://*", "vscode-webview://*", "vscode-file://*")


def default_origins() -> tuple[str, ...]:
    """The browser origins Ollama allows without being asked: this machine's, and desktop applications'."""
    local = (f"{scheme}://{host}{port}" for host in _LOCAL_HOSTS for port in ("", ":*") for scheme in _SCHEME_PORTS)
    return (*local, *_APP_ORIGINS)


@dataclass(frozen=True, slots=True)
class Upstream:
    """The server behind this one, and what is left to it.

    With `serve_gguf` GGUF models are computed here, too. `templates` says who renders prompts: "ollama", a process of
    our own that loads no weights; "own", the chat template that comes with the weights; "upstream", that server, which
    loads the model for it.
    """

    address: ServerAddress
    serve_gguf: bool = False
    templates: str = "ollama"


@dataclass(frozen=True, slots=True)
class FrontSettings:
    """An empty `host` listens on every address. `keep_alive` and `load_timeout` are seconds (`load_timeout`: without a
    sign of life from a loading runner)."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    origins: tuple[str, ...] = default_origins()
    num_ctx: int = 4096
    keep_alive: float = 300.0
    load_timeout: float = 300.0
    max_loaded: int = 3
    parallel: int = 1  # requests that one model answers at a time
    max_queue: int = 512  # requests that wait for a model to be loaded, beyond which they are refused
    upstream: Upstream | None = None  # the Ollama that answers whatever is not computed here; None: nobody does
    ollama: str = ""  # the program that renders prompts before an upstream; empty: the one on the PATH
    runner: tuple[str, ...] = ()  # the command that starts a runner; empty means this interpreter's own
    runner_args: tuple[str, ...] = ()  # added to every launch

    @property
    def url(self) -> str:
        """The address a client on this machine can reach."""
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


def parse_host(text: str) -> tuple[str, int]:
    """Host and port in any form that OLLAMA_HOST may have: `host`, `:port`, `host:port`, `[::1]:port`, a URL."""
    scheme, separator, rest = text.strip().partition("://")
    if not separator:
        scheme, rest = "", text.strip()
    default = _SCHEME_PORTS.get(scheme, DEFAULT_PORT)
    host, port = _split_host_port(rest.partition("/")[0])
    if port is None:
        return host or "127.0.0.1", default
    if not (_COUNT.fullmatch(port) and int(port) <= 65535):
        log.warning("PILOTFISH_HOST=%s: %r is not a port, using %d", text, port, default)
        return host, default
    return host, int(port)


def parse_upstream(text: str) -> ServerAddress:
    """The address in `http://host:port`, or in a shorter form that OLLAMA_HOST may have. Raises ConfigError."""
    scheme, separator, rest = text.strip().partition("://")
    authority, _, path = (rest if separator else scheme).partition("/")
    host, port = _split_host_port(authority)
    number = port if port is not None else str(_SCHEME_PORTS["http"] if separator else OLLAMA_PORT)
    if separator and scheme.lower() != "http":
        raise ConfigError(f"upstream: {shown(text)} is not spoken here; give an address that begins with http://")
    if path or not authority or not (_COUNT.fullmatch(number) and 0 < int(number) <= 65535):
        raise ConfigError(f"upstream: {shown(text)} is no address; write http://HOST:PORT, as in {EXAMPLE_UPSTREAM}")
    return ServerAddress({"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(number))


def _split_host_port(text: str) -> tuple[str, str | None]:
    bare = text.strip("[]")
    try:
        return str(ipaddress.ip_address(bare)), None
    except ValueError:
        pass
    host, separator, port = text.rpartition(":")
    return (host.strip("[]"), port) if separator else (text, None)


def settings_from_env(environ: Mapping[str, str] = os.environ) -> FrontSettings:
    """Settings from PILOTFISH_HOST, and for the rest from PILOTFISH_X or else Ollama's own OLLAMA_X.

    Raises ConfigError naming the variable.
    """
    host, port = parse_host(variable("PILOTFISH_HOST", environ))
    defaults = FrontSettings()
    return FrontSettings(
        host=host,
        port=port,
        origins=(*_origins(environ), *default_origins()),
        num_ctx=_count(environ, "CONTEXT_LENGTH", defaults.num_ctx),
        keep_alive=_seconds(environ, "KEEP_ALIVE", defaults.keep_alive, zero_is_forever=False),
        load_timeout=_seconds(environ, "LOAD_TIMEOUT", defaults.load_timeout, zero_is_forever=True),
        max_loaded=_count(environ, "MAX_LOADED_MODELS", defaults.max_loaded),
        parallel=_count(environ, "NUM_PARALLEL", defaults.parallel),
        max_queue=_count(environ, "MAX_QUEUE", defaults.max_queue),
    )


def _lookup(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    found = ((full, variable(full, environ)) for full in (f"PILOTFISH_{name}", f"OLLAMA_{name}"))
    return next(((full, value) for full, value in found if value), (f"PILOTFISH_{name}", ""))


def _origins(environ: Mapping[str, str]) -> list[str]:
    full, value = _lookup(environ, "ORIGINS")
    origins = [origin.strip() for origin in value.split(",") if origin.strip()]
    for origin in origins:
        if origin.count("*") > 1:
            raise ConfigError(f"{full}: {origin!r} has more than one *; write one pattern for each origin")
    return origins


def _count(environ: Mapping[str, str], name: str, default: int) -> int:
    full, value = _lookup(environ, name)
    if not value:
        return default
    if not _COUNT.fullmatch(value):
        raise ConfigError(f"{full}: expected a whole number of at most 9 digits, got {shown(value)}")
    return int(value) or default


def _seconds(environ: Mapping[str, str], name: str, default: float, *, zero_is_forever: bool) -> float:
    full, value = _lookup(environ, name)
    if not value:
        return default
    try:
        seconds = float(value) if _SECONDS.fullmatch(value) else parse_go_duration(value)
    except RequestError as error:
        raise ConfigError(f'{full}: {error}; write a duration such as "5m"') from error
    return FOREVER if zero_is_forever and seconds == 0 else lasting(seconds)
