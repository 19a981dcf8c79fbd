"""Every flag of llama-server has a handling, and the readers read exactly the served ones."""

from __future__ import annotations

import re
import subprocess

import pytest

from pilotfish.daemon.runner import launch_arguments
from pilotfish.daemon.runner.launch_arguments import parse
from pilotfish.daemon.runner.launch_flags import BY_NAME, FLAGS, Handling
from pilotfish.hooks.errors import UsageError
from tests.server_processes import stock_server

MODEL = ["--model", "m.gguf"]


def of(handling):
    return [flag for flag in FLAGS if flag.handling is handling]


def words(flag, name=None):
    return [name or flag.names[0], *["7"] * flag.values]


def test_no_name_stands_for_two_flags():
    names = [name for flag in FLAGS for name in flag.names]
    assert len(names) == len(set(names)) == len(BY_NAME)


def test_the_served_flags_are_those_that_are_read():
    read = set(launch_arguments._VALUES) | set(launch_arguments._SWITCHES)
    assert {name for flag in of(Handling.SERVED) for name in flag.names} == read
    assert all(
        bool(flag.values) == (name in launch_arguments._VALUES) for name, flag in BY_NAME.items() if name in read
    )


def test_what_asks_for_nothing_changes_no_launch():
    plain = parse(MODEL, {})
    for flag in of(Handling.NOTHING):
        for name in flag.names:
            assert parse([*words(flag, name), *MODEL], {}) == plain, name


def test_what_is_stocks_is_refused_by_name_with_a_reason():
    for flag in of(Handling.STOCK):
        for name in flag.names:
            with pytest.raises(UsageError, match=f"^{re.escape(name)}: .*; start the stock llama-server"):
                parse([*words(flag, name), *MODEL], {})


def test_what_is_stocks_may_say_what_is_so_anyway():
    usual = [(flag, value) for flag in of(Handling.STOCK) for value in flag.usual]
    assert ("--spec-type", "none") in [(flag.names[0], value) for flag, value in usual]
    for flag, value in usual:
        assert parse([flag.names[0], value, *MODEL], {}) == parse(MODEL, {})


def test_a_variable_says_what_its_flag_says_and_the_flag_comes_last():
    says = {"LLAMA_ARG_CTX_SIZE": "1000", "LLAMA_ARG_CONTEXT_SHIFT": "on", "LLAMA_ARG_CACHE_PROMPT": "0"}
    launch = parse(MODEL, says)
    assert (launch.context, launch.context_shift, launch.cache_prompt) == (1000, True, False)
    launch = parse([*MODEL, "-c", "500", "--no-context-shift"], says)
    assert (launch.context, launch.context_shift, launch.cache_prompt) == (500, False, False)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("LLAMA_ARG_TEMPERATURE", "0.2"), ("LLAMA_ARG_REPACK", "false"), ("LLAMA_ARG_SPEC_TYPE", "draft-mtp"),
     ("LLAMA_ARG_EMBEDDINGS", "1"), ("LLAMA_ARG_CTX_SIZE", "many"), ("LLAMA_ARG_NO_HOST", "1")],
)  # fmt: skip
def test_a_variable_that_this_runner_cannot_follow_is_named(variable, value):
    with pytest.raises(UsageError, match=f"^{variable} is set: .*unset it"):
        parse(MODEL, {variable: value})


@pytest.mark.parametrize(
    ("variable", "value"),
    [("LLAMA_ARG_REPACK", "true"), ("LLAMA_ARG_EMBEDDINGS", "off"), ("LLAMA_ARG_SPEC_TYPE", "none"), ("HF_TOKEN", "x"),
     ("LLAMA_ARG_TEMPERATURE", ""), ("LLAMA_ARG_NO_HOST", "0"), ("LLAMA_ARG_WHATEVER", "1")],
)  # fmt: skip
def test_a_variable_that_asks_for_nothing_changes_nothing(variable, value):
    assert parse(MODEL, {variable: value}) == parse(MODEL, {})


def test_a_variable_of_the_older_form_says_no_with_any_value():
    assert parse(MODEL, {"LLAMA_ARG_NO_CACHE_PROMPT": "1"}).cache_prompt is False
    assert parse(MODEL, {"LLAMA_ARG_NO_CONTEXT_SHIFT": "", "LLAMA_ARG_CONTEXT_SHIFT": "1"}).context_shift is False
    with pytest.raises(UsageError, match=r"^LLAMA_ARG_NO_REPACK is set: --no-repack"):
        parse(MODEL, {"LLAMA_ARG_NO_REPACK": "0"})


@pytest.mark.stock
def test_the_list_has_every_flag_and_variable_of_a_stock_server():
    shown = subprocess.run([*stock_server(), "--help"], capture_output=True, text=True, check=True).stdout
    missing, variables = set(), set()
    for entry in re.split(r"\n(?=-)", shown):
        head = (
            entry.split("\n")[0][:40] if len(entry.split("\n")[0]) > 40 and entry[39] == " " else entry.split("\n")[0]
        )
        names = re.findall(r"(?:^|, )\s*(--?[a-zA-Z][\w.-]*)", head)
        missing |= {name for name in names if name not in BY_NAME}
        for variable in re.findall(r"\(env: (\w+)\)", entry):
            if not any(variable in BY_NAME[name].variables for name in names if name in BY_NAME):
                variables.add(variable)
    assert not missing
    assert not variables
