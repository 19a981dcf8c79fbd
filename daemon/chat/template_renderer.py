"""The process that renders chat templates: `python -m pilotfish.daemon.chat.template_renderer`.

A chat template is a program out of a model file, and may loop for ever or build gigabytes. Nothing but the end of the
process stops one that is inside a single operation of Python's, so templates run in a process of their own, within
limits that the system enforces: of processor time for each rendering, of memory for the process.

Requests and answers are lines of JSON: `{"source": template, "variables": {...}, "seconds": processor time}`, then
`{"text": prompt}`, or `{"error": words}`, with `"broken": true` where the source is no template at all. A rendering
over its time has no answer: the process is gone. It ends with its standard input.
"""

from __future__ import annotations

import contextlib
import functools
import json
import resource
import signal
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import ChainableUndefined, Environment, Template, TemplateError, TemplateSyntaxError, Undefined, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MEMORY = 2 << 30  # bytes of address space
LONGEST_PROMPT = 64 << 20  # characters, as long as the longest request
LONGEST_WORDS = 1000  # characters of an error message


class _Generation(Extension):
    """`{% generation %}...{% endgeneration %}` marks what a training masks; for a prompt the tags mean nothing."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def main() -> None:
    """Answer requests until there are no more."""
    with contextlib.suppress(ValueError, OSError):  # macOS knows no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, wherever it is
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(_answer(line) + b"\n")
        sys.stdout.buffer.flush()


def _answer(line: bytes) -> bytes:
    try:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])
        answer = render(request["source"], request["variables"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        return json.dumps(answer).encode()
    except (MemoryError, RecursionError) as error:  # of the messages themselves, or of the whole prompt once more
        return json.dumps({"error": f"failed on these messages: {error!r}"}).encode()


def render(source: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to one request. What the template raises is words, whatever it is."""
    try:
        template = _compiled(source, bool(variables["messages"]))
    except TemplateSyntaxError as error:
        return {"error": _cut(f"line {error.lineno}: {error.message}"), "broken": True}
    except Exception as error:  # Python's own compiler has limits, too: of nesting, of memory
        return {"error": _cut(f"{type(error).__name__}: {error}"), "broken": True}
    try:
        return {"text": _text(template, variables)}
    except TemplateError as error:
        return {"error": _cut(f"refused these messages: {error}")}
    except Exception as error:
        return {"error": _cut(f"failed on these messages: {error!r}")}


def _text(template: Template, variables: Mapping[str, Any]) -> str:
    pieces, length = [], 0
    for piece in template.generate(variables):
        length += len(piece)
        if length > LONGEST_PROMPT:
            raise OverflowError(f"the prompt is longer than {LONGEST_PROMPT} characters")
        pieces.append(piece)
    return "".join(pieces)


@functools.lru_cache(maxsize=8)
def _compiled(source: str, strict: bool) -> Template:
    """Without `strict`, parts of what is not there are not there either: many templates look at `messages[0].role`,
    and there is no such message where the only one had to be dropped.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _Generation],
        undefined=Undefined if strict else ChainableUndefined,
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(source)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    separators, sort_keys = options.get("separators"), bool(options.get("sort_keys"))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _cut(words: str) -> str:
    return words if len(words) <= LONGEST_WORDS else f"{words[:LONGEST_WORDS]}..."


if __name__ == "__main__":
    main()
