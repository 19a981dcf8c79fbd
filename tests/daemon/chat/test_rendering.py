"""Templates that never come to an end, or build more than there is: they lose their process, nobody else anything."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading

import pytest

from pilotfish.daemon.chat.rendering import Renderer
from pilotfish.hooks.errors import EngineError, RequestError

VARIABLES = {"messages": [{"role": "user", "content": "hi"}]}
HELLO = "{{ messages[0].content }}"
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture
def renderer():
    renderer = Renderer(seconds=0.5)
    yield renderer
    renderer.close()


@pytest.mark.parametrize(
    "source",
    [
        LOOP,
        "{% macro f(n) %}{{ f(n - 1) ~ f(n - 1) if n else '' }}{% endmacro %}{{ f(60) }}",
        "{{ 10 ** (10 ** 10) }}",  # one operation, which no exception could end
    ],
    ids=["loops", "macros", "arithmetic"],
)
def test_a_template_that_does_not_end_is_ended(renderer, source):
    with pytest.raises(RequestError, match=r"stopped: it took more than 0\.5 s of processor time"):
        renderer.render(source, VARIABLES)
    assert renderer.render(HELLO, VARIABLES) == "hi"  # by the next process


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10 ** 12 }}",
        "{{ '%999999999999d' % 1 }}",
        "{% set n = namespace(s='x' * 1000) %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{% set s = 'x' * 2 ** 20 %}{% for i in range(99999) %}{{ s }}{% endfor %}",
    ],
    ids=["times", "width", "doubling", "output"],
)
def test_a_template_that_builds_too_much_fails_where_it_is(source):
    renderer = Renderer()
    with pytest.raises(RequestError, match="chat template"):
        renderer.render(source, VARIABLES)
    assert renderer.render(HELLO, VARIABLES) == "hi"
    renderer.close()


def test_a_process_that_was_killed_is_replaced(renderer):
    renderer.start()
    killed = renderer._process
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert renderer.render(HELLO, VARIABLES) == "hi"


def test_a_process_that_is_killed_at_work_is_not_the_messages_fault():
    renderer = Renderer(seconds=60)
    renderer.start()
    done = threading.Event()

    def kill():
        while not done.wait(0.1):
            renderer._process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(EngineError, match="ended with code -9; try again"):
        renderer.render(LOOP, VARIABLES)
    done.set()
    killer.join()
    assert renderer.render(HELLO, VARIABLES) == "hi"
    renderer.close()


def test_messages_nested_beyond_measure_are_the_messages_fault(renderer):
    nested = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(RequestError, match="nested too deeply"):
        renderer.render(HELLO, {**VARIABLES, "extra": nested})
    source = "{{ x | tojson }}"
    deep = "[" * 900 + "]" * 900  # more than the process reads, or as much as it does
    with contextlib.suppress(RequestError):
        renderer.render(source, {**VARIABLES, "x": json.loads(deep)})
    assert renderer.render(HELLO, VARIABLES) == "hi"


def test_renderings_of_many_threads_do_not_mix(renderer):
    texts = {}

    def render(name):
        texts[name] = renderer.render("{{ name }}", {**VARIABLES, "name": name})

    threads = [threading.Thread(target=render, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {str(number): str(number) for number in range(8)}


def test_a_refusal_of_any_length_is_told_in_part(renderer):
    with pytest.raises(RequestError) as refusal:
        renderer.render("{{ raise_exception('no' * 10 ** 6) }}", VARIABLES)
    assert "refused these messages: nono" in str(refusal.value)
    assert len(str(refusal.value)) < 2000


def test_the_process_ends_with_its_owner(renderer):
    renderer.start()
    process = renderer._process
    renderer.close()
    assert process.returncode == 0
