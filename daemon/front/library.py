"""What is installed and what is loaded: `/api/tags`, `/api/show`, `/api/ps`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import psutil
from aiohttp import web

from pilotfish.daemon.front.bodies import read_json
from pilotfish.daemon.front.catalog import ServedModel
from pilotfish.daemon.front.keys import CATALOG, RUNNERS
from pilotfish.daemon.front.runners import Loaded, Runners
from pilotfish.daemon.front.streams import json_response, timestamp
from pilotfish.hooks.errors import RequestError
from pilotfish.manifests.gguf_header import SCALARS, ArrayRef, Value, read_header
from pilotfish.manifests.gguf_numbers import GGUFValueType

_HIDDEN = ("general.name", "tokenizer.chat_template")


async def handle_tags(request: web.Request) -> web.Response:
    """GET /api/tags"""
    models = await request.app[CATALOG].all()
    return json_response({"models": [_listed(model) for model in models]})


def _listed(model: ServedModel) -> dict[str, Any]:
    metadata = model.metadata
    sizes = {"context_length": model.train_context, "embedding_length": metadata.embedding_length if metadata else 0}
    return {
        "name": model.short,
        "model": model.short,
        "modified_at": timestamp(model.manifest.modified),
        "size": model.manifest.size,
        "digest": model.manifest.digest,
        "details": {**model.details(), **{key: value for key, value in sizes.items() if value}},
        "capabilities": list(model.capabilities),
    }


async def handle_ps(request: web.Request) -> web.Response:
    """GET /api/ps"""
    return json_response({"models": await loaded_here(request.app[RUNNERS])})


async def loaded_here(runners: Runners) -> list[dict[str, Any]]:
    """What is loaded, as `/api/ps` lists it."""
    loaded = runners.loaded()
    sizes = await asyncio.to_thread(lambda: [_resident(entry.pid) for entry in loaded])
    return [_process(entry, size) for entry, size in zip(loaded, sizes, strict=True)]


def _resident(pid: int) -> int:
    """Bytes of memory a runner holds; 0 when it is gone."""
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return 0


def _process(entry: Loaded, size: int) -> dict[str, Any]:
    return {
        "name": entry.model.short,
        "model": entry.model.short,
        "size": size,
        "digest": entry.model.manifest.digest,
        "details": entry.model.details(),
        "expires_at": timestamp(entry.expires_at),
        "size_vram": 0,
        "context_length": entry.num_ctx,
    }


async def handle_show(request: web.Request) -> web.Response:
    """POST /api/show"""
    body = await read_json(request)
    name = body.get("model", str, "") or body.get("name", str, "")
    if not name:
        raise RequestError("model is required")
    model = await request.app[CATALOG].find(name)
    verbose = body.get("verbose", bool, False)
    return json_response(await asyncio.to_thread(_shown, model, body.get("system", str, ""), verbose))


def _shown(model: ServedModel, system: str, verbose: bool) -> dict[str, Any]:
    metadata = model.metadata
    shown = {
        "license": "\n".join(model.licenses),
        "modelfile": modelfile(model, system or model.system),
        "parameters": "\n".join(f"{key:<30} {_go_value(value)}" for key, value in _parameters(model)),
        "template": metadata.chat_template if metadata and metadata.chat_template else model.template,
        "system": system or model.system,
        "details": model.details(),
        "messages": [message.to_json() for message in model.messages],
        "model_info": _model_info(model, verbose),
        "capabilities": list(model.capabilities),
        "modified_at": timestamp(model.manifest.modified),
        "requires": model.config.requires,
    }
    if metadata and verbose:
        shown["tensors"] = [
            {"name": tensor.name, "type": tensor.type, "shape": list(tensor.shape)}
            for tensor in read_header(metadata.path, model.short).tensors
        ]
    return {key: value for key, value in shown.items() if value not in ("", []) or key in ("model_info", "details")}


def _model_info(model: ServedModel, verbose: bool) -> dict[str, Any]:
    """The GGUF's keys; arrays only when `verbose`, else null, as Ollama leaves the long ones out."""
    if model.metadata is None:
        return {}
    values: Mapping[str, Any] = model.metadata.values
    info = {key: _plain(value, verbose) for key, value in values.items() if key not in _HIDDEN}
    return {**info, "general.parameter_count": model.metadata.parameter_count}


def _plain(value: Any, verbose: bool) -> Any:
    if not isinstance(value, ArrayRef):
        return _finite(value)
    if not verbose:
        return None
    if value.element is GGUFValueType.STRING:
        return [text.decode("utf-8", "replace") for text in value.strings()]
    return [_finite(number) for number in value.numbers()] if value.element in SCALARS else None


def _finite(value: Value) -> Value | None:
    """JSON has no infinity and no NaN; null stands for them."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _parameters(model: ServedModel) -> Iterator[tuple[str, Any]]:
    for key, value in model.options.items():
        for item in value if isinstance(value, list) else [value]:
            yield key, item


def _go_value(value: Any) -> str:
    """As Go's `%#v` writes it, which `ollama show` prints."""
    return json.dumps(value, ensure_ascii=False)


def modelfile(model: ServedModel, system: str) -> str:
    """A Modelfile that makes this model again."""
    lines = [
        '# Modelfile generated by "ollama show"',
        "# To build a new Modelfile based on this, replace FROM with:",
        f"# FROM {model.short}",
        "",
    ]
    lines += [f"FROM {model.metadata.path if model.metadata else model.short}"]
    lines += [f"ADAPTER {path}" for path in model.adapters]
    lines += [f"TEMPLATE {_quoted(model.template or '{{ .Prompt }}')}"]
    lines += [f"SYSTEM {_quoted(system)}"] if system else []
    lines += [f"PARAMETER {key} {_quoted(_text(value))}" for key, value in _parameters(model)]
    lines += [f"LICENSE {_quoted(text)}" for text in model.licenses]
    lines += [f"MESSAGE {message.role} {_quoted(message.content)}" for message in model.messages]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    if "\n" in text or text != text.strip(" "):
        return f'"""{text}"""' if '"' in text else f'"{text}"'
    return text
