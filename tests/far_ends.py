"""Far ends as processes, `pilotfish rpc-host` on ports of this machine, and a near end that uses them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.waiting import wait_until

BUILT = Path(__file__).resolve().parents[1] / ".cache" / "rpc" / "lib"  # where `make rpc` puts it
SECONDS = 120


def rpc_folder() -> Path:
    """A libllama with libggml-rpc; skips the test where there is none."""
    folder = Path(os.environ.get("PILOTFISH_TEST_RPC", BUILT))
    if not any(folder.glob("libggml-rpc.*")):
        pytest.skip(f"no libggml-rpc in {folder}: run `make rpc`, or set PILOTFISH_TEST_RPC")
    return folder


class RunningFarEnd:
    """A `pilotfish rpc-host` that listens. `said` is its first line."""

    def __init__(self, process: subprocess.Popen[str], said: dict[str, Any], log: Path) -> None:
        self.process = process
        self.said = said
        self.endpoint: str = said["endpoint"]
        self.log = log

    @property
    def child(self) -> psutil.Process:
        """The process that computes."""
        return psutil.Process(self.process.pid).children()[0]

    def health(self) -> dict[str, Any]:
        """What it says at /health, with the status, if it is not 200, under "status"."""
        answer = httpx.get(f"http://{self.endpoint}/health", timeout=SECONDS)
        found: dict[str, Any] = answer.json()
        return found if answer.status_code == 200 else {**found, "status": answer.status_code}

    def wait_until_free(self) -> None:
        """Until nobody is served and its process is there."""
        wait_until(lambda: not self.health()["busy"] and "status" not in self.health(), "it is not free", SECONDS)

    def kill_child(self) -> None:
        """What computes is gone; the host will start it again."""
        self.child.kill()

    def kill(self) -> None:
        """All of it is gone, as with its machine; what was connected notices."""
        child = self.child
        self.process.kill()
        self.process.wait(SECONDS)
        child.wait(SECONDS)

    def pause(self) -> None:
        """Nothing of it answers, and every connection stays."""
        for process in (psutil.Process(self.process.pid), self.child):
            process.suspend()

    def resume(self) -> None:
        for process in (self.child, psutil.Process(self.process.pid)):
            process.resume()


@contextlib.contextmanager
def far_end(
    folder: Path, *arguments: str, memory: int | None = None, host: str = "127.0.0.1:0", libllama: Path | None = None
) -> Iterator[RunningFarEnd]:
    """A far end with one thread; `folder` gets its log, `memory` is in MiB."""
    limited = () if memory is None else ("--memory", str(memory))
    command = [
        sys.executable, "-m", "pilotfish.daemon.cli", "-v", "rpc-host", "--host", host, "--threads", "1", "--json",
        "--libllama", str(libllama or rpc_folder()), *limited, *arguments,
    ]  # fmt: skip
    log = folder / "far-end.log"
    with log.open("a") as written:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=written, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        yield RunningFarEnd(process, json.loads(line), log)
    finally:
        if process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(process.pid).resume()
            process.terminate()
        assert process.wait(SECONDS) is not None
        assert process.stdout is not None
        process.stdout.close()


def greedy_ids(model: Path, far_ends: Sequence[RunningFarEnd], prompt: str, n: int, *, threads: int = 1) -> list[int]:
    """What a near end without pilotfish answers, with all layers on the far ends. Fails with its last words."""
    done = near_end(model, far_ends, prompt, n, threads=threads)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[int] = json.loads(done.stdout.splitlines()[-1])
    return found


def near_end(
    model: Path, far_ends: Sequence[RunningFarEnd], prompt: str, n: int, *, threads: int = 1
) -> subprocess.CompletedProcess[str]:
    """That near end as a process; 3 is the exit code of one whose model could not be loaded."""
    words = [str(model), ",".join(end.endpoint for end in far_ends), prompt, str(n), str(threads)]
    return subprocess.run(
        [sys.executable, "-c", _NEAR_END, *words],
        env={**os.environ, "LLAMA_CPP_LIB_PATH": str(rpc_folder())},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


_NEAR_END = """
import ctypes, json, os, sys
from llama_cpp import llama_cpp as lib

model, endpoints, prompt, n, threads = sys.argv[1:]
rpc = ctypes.CDLL(os.path.join(os.environ["LLAMA_CPP_LIB_PATH"], "libggml-rpc" + os.path.splitext(lib._lib._name)[1]))
rpc.ggml_backend_rpc_add_server.restype = ctypes.c_void_p
ggml = ctypes.CDLL(lib._lib._name)
ggml.ggml_backend_register.argtypes = [ctypes.c_void_p]
for endpoint in filter(None, endpoints.split(",")):
    ggml.ggml_backend_register(rpc.ggml_backend_rpc_add_server(endpoint.encode()))
lib.llama_backend_init()
asked = lib.llama_model_default_params()
asked.n_gpu_layers = 999
loaded = lib.llama_model_load_from_file(model.encode(), asked)
if not loaded:
    sys.exit(3)
wanted = lib.llama_context_default_params()
wanted.n_ctx, wanted.n_threads, wanted.n_threads_batch = 512, int(threads), int(threads)
context, vocabulary = lib.llama_init_from_model(loaded, wanted), lib.llama_model_get_vocab(loaded)
if not context:
    sys.exit(3)
ids = (lib.llama_token * 256)()
count = lib.llama_tokenize(vocabulary, prompt.encode(), len(prompt.encode()), ids, 256, True, False)
found, pending = [], list(ids[:count])
for _ in range(int(n)):
    kept = (lib.llama_token * len(pending))(*pending)
    assert lib.llama_decode(context, lib.llama_batch_get_one(kept, len(pending))) == 0
    row = lib.llama_get_logits_ith(context, -1)
    pending = [max(range(lib.llama_vocab_n_tokens(vocabulary)), key=lambda token: row[token])]
    found += pending
print(json.dumps(found))
"""
