"""llama-server's command line as Ollama writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.daemon.config.reader import parse as configured
from pilotfish.daemon.runner.launch_arguments import DEFAULT_CONTEXT, in_force, parse
from pilotfish.hooks.errors import UsageError
from pilotfish.hooks.types import EngineOptions

OLLAMA = """
    --model /blobs/sha256-ab --port 41234 --host 127.0.0.1 --no-webui --offline -c 8192 -np 2 --log-verbosity 4
    --no-log-prefix --no-log-timestamps --no-jinja --chat-template chatml --load-mode none --cache-type-k q8_0
    --cache-type-v q8_0 --flash-attn on -b 1024 -ub 1024 -ngl 0 -t 3 --split-mode none --main-gpu 0 --context-shift
    --keep 4 --image-min-tokens 1024
"""


def test_everything_ollama_may_pass_to_a_text_model():
    launch = parse(OLLAMA.split())

    assert (launch.model, launch.host, launch.port) == (Path("/blobs/sha256-ab"), "127.0.0.1", 41234)
    assert launch.chat_template == "chatml"
    assert launch.context_shift
    assert launch.name == "/blobs/sha256-ab"
    assert launch.engine_options(None) == EngineOptions(
        n_ctx=4096,
        slots=2,
        threads=3,
        batch_size=1024,
        gpu_layers=0,
        main_gpu=0,
        use_mmap=False,
        cache_type_k="q8_0",
        cache_type_v="q8_0",
        flash_attention=True,
    )


def test_what_the_launch_leaves_open_stays_open():
    launch = parse(["--model", "m.gguf"])
    assert launch.engine_options(None) == EngineOptions(n_ctx=DEFAULT_CONTEXT)


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        ("", {}, 8192 << 20),
        ("-cram 0", {}, 0),
        ("--cache-ram 300", {}, 300 << 20),
        ("--cache-ram -1", {}, None),
        ("", {"LLAMA_ARG_CACHE_RAM": "5"}, 5 << 20),
        ("--cache-ram 6", {"LLAMA_ARG_CACHE_RAM": "5"}, 6 << 20),
    ],
)
def test_the_memory_for_conversations_is_what_the_flag_says_or_else_the_variable(
    flags: str, environment: dict[str, str], expected: int | None
) -> None:
    assert parse(["--model", "m.gguf", *flags.split()], environment).cache_ram == expected


def test_a_variable_that_is_no_number_is_named() -> None:
    with pytest.raises(UsageError, match="LLAMA_ARG_CACHE_RAM is set: --cache-ram: expected a whole number"):
        parse(["--model", "m.gguf"], {"LLAMA_ARG_CACHE_RAM": "much"})


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("-m x", "--model x"),
        ("-c 99", "--ctx-size 99"),
        ("-np 2", "--parallel 2"),
        ("-sps 0.5", "--slot-prompt-similarity 0.5"),
        ("-t 2", "--threads 2"),
        ("-b 64", "--batch-size 64"),
        ("-ngl 5", "--n-gpu-layers 5"),
        ("-ngl 5", "--gpu-layers 5"),
        ("-ctk bf16", "--cache-type-k bf16"),
        ("-ctv bf16", "--cache-type-v bf16"),
        ("-fa off", "--flash-attn off"),
        ("-a name", "--alias name"),
        ("-n 7", "--n-predict 7"),
    ],
)
def test_both_spellings_mean_the_same(short, long):
    assert parse(["--model", "m", *short.split()]) == parse(["--model", "m", *long.split()])


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ("--flash-attn auto", "flash_attention", None),
        ("-ngl auto", "gpu_layers", None),
        ("-ngl all", "gpu_layers", 2**31 - 1),
        ("-t -1", "threads", None),
        ("-c 0", "context", DEFAULT_CONTEXT),
        ("--load-mode dio", "use_mmap", False),
        ("--no-mmap", "use_mmap", False),
        ("--port 0", "port", 0),
        ("-np 1 -np 3", "parallel", 3),
        ("--split-mode none --main-gpu 2", "main_gpu", 2),
        ("--split-mode none", "main_gpu", 0),
        ("--main-gpu 2", "main_gpu", None),
        ("--split-mode layer --main-gpu 2", "main_gpu", None),
        ("--keep -1", "keep", -1),
        ("--no-cache-prompt", "cache_prompt", False),
        ("-sps 0.25", "slot_similarity", 0.25),
    ],
)
def test_special_values(flags, field, value):
    assert getattr(parse(["--model", "m", *flags.split()]), field) == value


def test_a_template_may_be_given_as_text_or_as_a_file(tmp_path):
    file = tmp_path / "chat.jinja"
    file.write_text("{{ messages }}")
    assert parse(["--model", "m", "--chat-template", "{{ messages }}"]).chat_template == "{{ messages }}"
    assert parse(["--model", "m", "--chat-template-file", str(file)]).chat_template == "{{ messages }}"


@pytest.mark.parametrize(
    "flags",
    [
        "--mmproj no-such-file.gguf",
        "--lora a.gguf",
        "--embedding",
        "--spec-type draft-mtp",
        "--spec-draft-model d.gguf",
        "--list-devices",
        "--port eleven",
        "--port 70000",
        "-c -5",
        "-np 0",
        "-sps 1.5",
        "-sps nan",
        "-sps much",
        "--cache-type-k f12",
        "--flash-attn maybe",
        "--chat-template vicuna",
        "--chat-template-file /no/such/file",
        "--split-mode row",
        "--control-vector-layer-range 1",
        "--never-heard-of 5",
        "stray",
        "--port",
    ],
)
def test_what_it_cannot_do_is_refused_by_name(flags):
    with pytest.raises(UsageError, match=flags.split()[0]):
        parse(["--model", "m", *flags.split()])


def test_a_launch_without_a_model_is_refused():
    with pytest.raises(UsageError, match="--model"):
        parse(["--port", "80"])


def test_no_far_end_computes_a_model_that_its_manifest_names():
    config = configured({"engine": {"rpc": ["10.0.0.2"]}})
    for path, far_ends in (
        ("/m/blobs/sha256-ab", ("10.0.0.2:50052",)),
        ("/m/manifests/registry.ollama.ai/library/tensors/latest", ()),
    ):
        assert in_force(config, parse(["--model", path], {})).engine.rpc == far_ends
