"""Runner or stock: one launch, one reason."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pilotfish.daemon.certify.left_to_stock import Left, LeftToStock
from pilotfish.daemon.config import files as configuration
from pilotfish.daemon.config.reader import parse
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.control import decision_log
from pilotfish.daemon.runner.daemon_link import in_force
from pilotfish.daemon.runner.launch_arguments import parse as parse_launch
from pilotfish.hooks.environment import OFF
from pilotfish.hooks.errors import ConfigError
from pilotfish.manifests.fingerprints import file_digest
from pilotfish.manifests.store import Store
from pilotfish.ollama_overlay.attempts import Attempts
from pilotfish.ollama_overlay.decision import decide
from pilotfish.ollama_overlay.shim_script import DECIDED_STOCK, RUNNER, RUNNER_ON_OLLAMA
from pilotfish.ollama_overlay.stock_floor import StockFloor
from tests.fakes.scans import scans
from tests.manifests.builders import tiny_gguf


@pytest.fixture
def store(tmp_path):
    weights = tmp_path / "weights.gguf"
    tiny_gguf(weights)
    store = Store(tmp_path / "models")
    store.add_gguf("tiny:1b", weights)
    return store


@pytest.fixture
def blob(store):
    return store.blob(store.manifest("tiny:1b").weights[0])


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def launch(blob, *more):
    """What Ollama says, and some flags."""
    return ["--model", str(blob), "--port", "1", "--host", "127.0.0.1", "--no-webui", "--offline", "-c", "4096",
            "-np", "1", "--log-verbosity", "4", "--no-log-prefix", "--no-log-timestamps", *more]  # fmt: skip


@pytest.fixture
def deciding(blob, state):
    def decided(*more, config="", packages=("llama_cpp", "ik_llama_cpp"), argv=None):
        parsed = parse(configuration.tomli.loads(config))
        return decide(argv or launch(blob, *more), state, lambda: parsed, packages.__contains__)

    return decided


def test_a_plain_launch_is_for_the_runner(deciding):
    decision = deciding("--no-jinja", "--chat-template", "chatml", "--flash-attn", "auto", "-b", "512", "-ub", "512")
    assert decision.runner
    assert decision.model == "tiny:1b"
    assert not decision.ollama_libraries


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--mmproj", "/p"), "--mmproj"),
        (("--lora", "/a"), "--lora"),
        (("--embedding",), "--embedding"),
        (("--spec-type", "draft-mtp", "--spec-draft-n-max", "4"), "--spec-type"),
        (("--brand-new-flag",), "--brand-new-flag"),
        (("-c", "many"), "-c"),
    ],
)
def test_what_the_runner_does_not_do_goes_to_stock(deciding, flags, reason):
    decision = deciding(*flags)
    assert not decision.runner
    assert decision.reason.startswith(reason)


def test_what_the_environment_asks_of_llama_server_goes_to_stock_too(deciding, monkeypatch):
    monkeypatch.setenv("LLAMA_ARG_TOP_K", "20")
    decision = deciding()
    assert not decision.runner
    assert decision.reason.startswith("LLAMA_ARG_TOP_K is set: --top-k: ")


@pytest.mark.parametrize(
    ("config", "runner"),
    [
        ("[speculation]\nenabled = false", False),
        ('[models."tiny:1b"]\nenabled = false', False),
        ('[models."TINY:1B"]\nenabled = false', False),
        ('[models."other"]\nenabled = false', True),
        ('[speculation]\nenabled = false\n[models."tiny:1b"]\nenabled = true', True),
    ],
    ids=["all off", "this one off", "in other letters", "another off", "all off but this one"],
)
def test_the_config_switches_models_off(deciding, config, runner):
    decision = deciding(config=config)
    assert decision.runner is runner
    assert runner or "switched off" in decision.reason


def test_of_models_that_share_a_weight_file_one_that_is_off_is_enough(deciding, store, tmp_path):
    store.add_gguf("other:1b", tmp_path / "weights.gguf")
    decision = deciding(config='[models."other:1b"]\nenabled = false')
    assert not decision.runner
    assert decision.model == "other:1b, tiny:1b"
    assert "other:1b" in decision.reason


def test_without_an_engine_there_is_no_runner(deciding):
    reason = deciding(packages=()).reason
    assert "pip install 'pilotfish[llama]'" in reason
    assert "pip install 'pilotfish[ik]'" in reason


@pytest.mark.parametrize("package", ["llama_cpp", "ik_llama_cpp"])
def test_any_engine_is_enough(deciding, package):
    assert deciding(packages=(package,)).runner


def test_the_engine_that_was_chosen_is_the_one_that_must_be_there(deciding):
    ik = '[engine]\nchoice = "ik"\n'
    decision = deciding(config=ik, packages=("ik_llama_cpp",))
    assert (decision.runner, decision.ollama_libraries) == (True, False)
    assert "engine ik" in decision.reason
    assert "pip install 'pilotfish[ik]'" in deciding(config=ik, packages=("llama_cpp",)).reason


@pytest.mark.parametrize("where", ["[speculation]", '[models."tiny:1b"]'])
def test_stock_parity_excludes_other_engines_and_says_so(deciding, where):
    config = f'[engine]\nchoice = "ik"\n{where}\nparity = "stock"\n'
    decision = deciding(config=config, packages=("llama_cpp",))
    assert decision.runner
    assert 'parity = "stock" keeps to llama' in decision.reason
    assert "pilotfish[llama]" in deciding(config=config, packages=("ik_llama_cpp",)).reason


def test_the_manifests_are_gone_through_once(deciding, store):
    with scans(store.manifests) as seen:
        assert deciding().runner
    assert len(seen) == 1


@pytest.mark.parametrize("word", [*OFF, "OFF", '"off"', "'False'"])
def test_the_environment_switches_it_off_in_every_spelling(deciding, monkeypatch, word):
    monkeypatch.setenv("PILOTFISH", word)
    decision = deciding()
    assert not decision.runner
    assert decision.reason.startswith("PILOTFISH=")
    monkeypatch.setenv("PILOTFISH", "on")
    assert deciding().runner


def test_a_bad_config_is_a_reason(blob, state):
    def load():
        raise ConfigError("pilotfish.toml: speculation.enabled: expected true or false")

    decision = decide(launch(blob), state, load, lambda package: True)
    assert not decision.runner
    assert "speculation.enabled" in decision.reason


def test_anything_that_raises_is_a_reason(blob, state):
    decision = decide(launch(blob), state, lambda: 1 / 0, lambda package: True)
    assert not decision.runner
    assert "ZeroDivisionError" in decision.reason


def test_a_missing_file_is_a_reason(tmp_path, deciding):
    decision = deciding(argv=launch(tmp_path / "nothing.gguf"))
    assert not decision.runner
    assert "nothing.gguf" in decision.reason


def test_a_blob_known_to_be_damaged_goes_to_stock(deciding, blob, state):
    data = blob.read_bytes()
    blob.unlink()
    blob.write_bytes(bytes(len(data)))
    os.utime(blob, (1, 1))
    assert deciding().runner, "nobody has looked yet; the runner does while it loads"
    entry = {"stamp": list(stamp(blob)), "facts": {"sha256": "0" * 64}}
    (state / "fingerprints.json").write_text(json.dumps({"format": 1, "files": {str(blob.resolve()): entry}}))

    decision = deciding()
    assert not decision.runner
    assert str(blob) in decision.reason
    assert "pull" in decision.reason


def stamp(path):
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def test_a_blob_that_was_hashed_and_is_sound_speculates(deciding, blob, state):
    os.utime(blob, (1, 1))
    file_digest(blob, state)
    assert deciding().runner


def test_a_tag_that_was_pulled_again_decodes_plainly_once(deciding, store, tmp_path):
    """Case 24: another manifest than the pinned one means plain decoding and a line, and the new pin is taken."""
    assert deciding().runner
    assert deciding().runner
    store.add_gguf("tiny:1b", tmp_path / "weights.gguf", system="Be brief.")

    decision = deciding()
    assert not decision.runner
    assert "pulled or created again" in decision.reason
    assert deciding().runner


def test_a_model_added_to_a_known_file_is_no_mismatch(deciding, store, tmp_path):
    assert deciding().runner
    store.add_gguf("another:1b", tmp_path / "weights.gguf", system="Be brief.")
    assert deciding().runner


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', "{" * 100_000])
def test_damaged_pins_count_as_none(deciding, state, text):
    state.mkdir()
    (state / "pins.json").write_text(text)
    assert deciding().runner


def test_after_two_loads_that_crashed_it_is_stock_for_a_day(deciding, blob, state):
    mark = Attempts(state, blob)._path
    mark.parent.mkdir(parents=True)
    mark.write_text("Fatal Python error: Segmentation fault\n\nCurrent thread\n")
    assert deciding().runner
    mark.write_text(mark.read_text() * 2)
    decision = deciding()
    assert not decision.runner
    assert "Segmentation fault" in decision.reason
    assert str(mark) in decision.reason

    os.utime(mark, (1, 1))
    assert deciding().runner


@pytest.fixture
def leaving(blob, monkeypatch, tmp_path, state):
    """`leaving(reason, *flags, config)`: what a runner does that finds nothing to gain with a launch."""
    monkeypatch.setenv("PILOTFISH_STATE", str(state))
    monkeypatch.setenv("PILOTFISH_STOCK", str(tmp_path / "llama-server"))
    os.utime(blob, (1, 1))
    time.sleep(0.06)  # what was changed a moment ago is not remembered

    def left(reason, *flags, config="", job=""):
        launched = parse_launch(launch(blob, *flags)).with_users()
        settings = in_force(parse(configuration.tomli.loads(config)), launched)
        StockFloor(str(tmp_path / "llama-server")).leave(launched, settings, Left(reason, time.time(), job=job))

    return left


def test_what_ended_at_stock_goes_there_at_once(deciding, leaving):
    assert deciding().runner
    leaving("its sliding window forgets")
    decision = deciding()
    assert (decision.runner, decision.reason) == (False, "its sliding window forgets")
    assert not deciding("--port", "17", "--alias", "other").runner


@pytest.mark.parametrize("change", ["a flag", "the config", "the stock server", "the weights"])
def test_until_anything_about_it_changes(deciding, leaving, change, tmp_path, blob):
    leaving("its sliding window forgets")
    if change == "the stock server":
        (tmp_path / "llama-server").touch()
    if change == "the weights":
        os.utime(blob, (2, 2))
    flags = ("--cache-type-k", "q8_0") if change == "a flag" else ()
    config = '[drafters]\norder = ["other"]' if change == "the config" else ""
    assert deciding(*flags, config=config).runner


def test_what_a_load_left_to_stock_is_certified_beside_it_where_it_may_help(deciding, leaving, blob, monkeypatch):
    monkeypatch.delenv("PILOTFISH_CERTIFY", raising=False)
    leaving("no wider lane was found")
    assert deciding().certify == ()
    leaving("no wider lane was found", job="a job")
    weights, under, seconds = deciding().certify
    assert (weights, seconds) == (str(blob), "60")
    monkeypatch.setenv("PILOTFISH_CERTIFY", "off")
    assert deciding().certify == ()
    monkeypatch.delenv("PILOTFISH_CERTIFY")
    LeftToStock(Path(os.environ["PILOTFISH_STATE"]), blob).tried(under)
    decision = deciding()
    assert (decision.runner, decision.certify) == (False, ())


def test_a_load_that_speculates_makes_up_for_it(deciding, leaving, blob):
    leaving("its sliding window forgets")
    with StockFloor("/stock").loading(blob):
        pass
    assert deciding().runner


def full(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("state_of", [lambda file: file, lambda file: file / "state"], ids=["a file", "below a file"])
def test_a_state_folder_that_cannot_be_made_does_not_stop_speculation(blob, tmp_path, state_of):
    (tmp_path / "file").touch()
    assert decide(launch(blob), state_of(tmp_path / "file"), Config, lambda package: True).runner


def test_a_pin_that_cannot_be_taken_anew_is_no_reason_for_ever(deciding, store, tmp_path, monkeypatch):
    assert deciding().runner
    store.add_gguf("tiny:1b", tmp_path / "weights.gguf", system="Be brief.")
    monkeypatch.setattr(os, "fsync", full)
    assert deciding().runner


def test_a_relative_path_goes_to_stock(deciding):
    """Ollama takes OLLAMA_MODELS=~/x as it stands, and hands such a path on."""
    decision = deciding(argv=launch("~/x/blobs/sha256-1"))
    assert not decision.runner
    assert "~/x/blobs/sha256-1 is a relative path" in decision.reason


@pytest.mark.parametrize("error", [SystemExit(0), BaseException("panic"), RecursionError()])
def test_whatever_is_raised_is_a_reason(blob, state, error):
    def load():
        raise error

    assert type(error).__name__ in decide(launch(blob), state, load, lambda package: True).reason


def test_a_file_outside_a_store_is_called_by_its_name(deciding, tmp_path):
    decision = deciding(argv=launch(tmp_path / "weights.gguf"))
    assert decision.runner
    assert decision.model == "weights.gguf"
    assert not deciding(argv=launch(tmp_path / "weights.gguf"), config="[speculation]\nenabled = false").runner


def test_a_broken_manifest_beside_it_does_not_matter(deciding, store):
    for name, data in (("empty", b""), ("half", b'{"layers": [')):
        path = store.manifests / "registry.ollama.ai" / "library" / name / "latest"
        path.parent.mkdir()
        path.write_bytes(data)
    assert deciding().model == "tiny:1b"


class TestProcess:
    """The decision as the script runs it."""

    @pytest.fixture
    def run(self, blob, state, tmp_path):
        def process(*more, config=""):
            path = tmp_path / "pilotfish.toml"
            path.write_text(config or "# nothing\n")
            env = {**os.environ, "PILOTFISH_STATE": str(state), "PILOTFISH_CONFIG": str(path)}
            command = [sys.executable, "-P", "-m", "pilotfish.ollama_overlay.shim", *launch(blob, *more)]
            return subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)

        return process

    def test_the_exit_code_says_what_to_become(self, run):
        assert run().returncode == RUNNER
        assert run("--lora", "x").returncode == DECIDED_STOCK
        assert run(config='[engine]\nlibllama = "ollama"\n').returncode in (RUNNER, RUNNER_ON_OLLAMA)

    def test_one_line_says_why_and_so_does_the_state_folder(self, run, state):
        done = run("--lora", "x")
        (entry,) = decision_log.read(state)

        assert len(done.stderr.splitlines()) == 1
        assert entry.reason in done.stderr
        assert (entry.model, entry.decision) == ("tiny:1b", "stock")

    def test_a_state_folder_that_cannot_be_written_costs_nothing(self, run, state):
        state.write_text("a file")
        assert run().returncode in (RUNNER, DECIDED_STOCK)

    def test_a_user_without_a_home_folder_has_stock_and_a_reason(self, blob, tmp_path):
        patched = "import os; os.path.expanduser = lambda path: path\n"
        code = patched + "import sys; from pilotfish.ollama_overlay import shim; sys.exit(shim.main(sys.argv[1:]))"
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PILOTFISH", "XDG", "HOME"))}
        command = [sys.executable, "-P", "-c", code, *launch(blob)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == DECIDED_STOCK
        assert "no home folder" in done.stderr
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "~").exists()

    @pytest.mark.parametrize("unbuffered", ["", "1"])
    def test_a_stderr_that_is_gone_costs_nothing(self, blob, state, unbuffered):
        command = [sys.executable, "-P", "-m", "pilotfish.ollama_overlay.shim", *launch(blob, "--lora", "x")]
        env = {**os.environ, "PILOTFISH_STATE": str(state), "PYTHONUNBUFFERED": unbuffered}
        with Path("/dev/full").open("w") as nowhere:
            assert subprocess.run(command, env=env, stderr=nowhere, check=False).returncode == DECIDED_STOCK

    def test_nothing_slow_is_imported(self, blob, state):
        text = "import sys; from pilotfish.ollama_overlay import shim; print(*sorted(sys.modules))"
        done = subprocess.run([sys.executable, "-P", "-c", text], capture_output=True, text=True, check=True)
        loaded = {name.partition(".")[0] for name in done.stdout.split()}
        assert "pilotfish" in loaded
        assert not loaded & {"numpy", "gguf", "aiohttp", "llama_cpp", "rich", "jinja2", "watchdog", "asyncio"}
