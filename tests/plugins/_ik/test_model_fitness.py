"""What ik_llama.cpp cannot compute is refused before the library sees it here; some of it would end the process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import pytest

from pilotfish.hooks.errors import BrokenModel, EngineError, PilotfishError
from pilotfish.hooks.protocols import RefusesModels
from pilotfish.hooks.types import EngineOptions, TargetPin, WeightPin
from pilotfish.plugins._ik import child, model_fitness
from pilotfish.plugins.verifiers.ik import IkVerifier
from pilotfish.plugins.verifiers.llama import LlamaVerifier
from tests.plugins.verifiers.tiny_gguf import write_hybrid, write_llama, write_mamba, write_sliding_window, write_vast

pytestmark = pytest.mark.model

PinOf = Callable[[Path], TargetPin]
Write = Callable[[Path], Path]
Kind = gguf.GGMLQuantizationType
OPTIONS = EngineOptions(n_ctx=256, batch_size=16, threads=1)


def truncated(path: Path) -> Path:
    path.write_bytes(write_llama(path).read_bytes()[:-3000])
    return path


REFUSED: dict[str, tuple[Write, str, type[PilotfishError]]] = {
    "recurrent": (write_mamba, "recurrent", EngineError),
    "hybrid": (write_hybrid, "recurrent, in part", EngineError),
    "unknown architecture": (lambda path: write_llama(path, "zorblax"), "architecture: 'zorblax'", BrokenModel),
    "unknown pre-tokenizer": (lambda path: write_llama(path, split="zorblax"), "type: 'zorblax'", BrokenModel),
    "missing tensor": (lambda path: write_llama(path, without="blk.0.ffn_up.weight"), "ffn_up", BrokenModel),
    "truncated": (truncated, "not within the file", BrokenModel),
    "unknown number format": (lambda path: write_llama(path, kind=Kind.TQ2_0), "SIGFPE", EngineError),
    "another one": (lambda path: write_llama(path, kind=Kind.I8), "SIGSEGV", EngineError),
}
TAKEN: dict[str, Write] = {
    "llama": write_llama,
    "windows": write_sliding_window,
    "known pre-tokenizer": lambda path: write_llama(path, split="smollm"),
    "MXFP4": lambda path: write_llama(path, kind=Kind.MXFP4),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_it_cannot_compute_is_refused_and_costs_no_process(kind: str, pin_of: PinOf, tmp_path: Path) -> None:
    write, cause, error = REFUSED[kind]
    pin = pin_of(write(tmp_path / "m.gguf"))
    why = IkVerifier().unfit_for(pin, OPTIONS)
    assert pin.name in why
    assert cause in why
    assert "libllama" in why
    with pytest.raises(error, match=cause):
        IkVerifier().load(pin, None, OPTIONS)


@pytest.mark.parametrize("kind", TAKEN)
def test_what_it_computes_is_taken(kind: str, pin_of: PinOf, tmp_path: Path) -> None:
    pin = pin_of(TAKEN[kind](tmp_path / "m.gguf"))
    assert IkVerifier().unfit_for(pin, OPTIONS) == ""
    IkVerifier().load(pin, None, OPTIONS).close()


def test_a_tokenizer_that_it_would_guess_is_refused(pin_of: PinOf, tmp_path: Path) -> None:
    """The library loads such a file with a warning that quality will be degraded."""
    path = write_llama(tmp_path / "m.gguf", split="smollm")
    path.write_bytes(path.read_bytes().replace(b"tokenizer.ggml.pre", b"tokenizer.ggml.prx"))
    assert "splits text" in IkVerifier().unfit_for(pin_of(path), OPTIONS)


def test_a_vocabulary_is_tried_before_it_is_read_here(pin_of: PinOf, tmp_path: Path) -> None:
    pin = pin_of(write_llama(tmp_path / "m.gguf", kind=Kind.NVFP4))
    with pytest.raises(EngineError, match="SIGFPE"), IkVerifier().vocabulary(pin):
        pass
    with IkVerifier().vocabulary(pin_of(write_mamba(tmp_path / "mamba.gguf"))) as vocabulary:
        assert vocabulary.piece(3) == b"\0"


def test_a_file_that_is_gone_or_one_of_several_is_named(pin_of: PinOf, tmp_path: Path) -> None:
    pin = pin_of(write_llama(tmp_path / "m.gguf"))
    two = replace(pin, weights=(*pin.weights, WeightPin("", tmp_path / "other.gguf", 1)))
    assert "one file" in IkVerifier().unfit_for(two, OPTIONS)
    pin.path.unlink()
    assert str(pin.path) in IkVerifier().unfit_for(pin, OPTIONS)


def test_a_missing_library_fits_no_model(pin_of: PinOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IK_LLAMA_CPP_LIB_PATH", str(tmp_path / "libllama.so"))
    pin = pin_of(write_llama(tmp_path / "m.gguf"))
    assert "is no file" in IkVerifier().unfit_for(pin, OPTIONS)


def test_what_was_found_is_remembered_until_the_file_changes(
    pin_of: PinOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def counted(*words: str) -> dict[str, object]:
        asked.append(words)
        return child.ask(*words)

    monkeypatch.setattr(model_fitness, "ask", counted)
    options = replace(OPTIONS, state_dir=tmp_path / "state")
    path = write_llama(tmp_path / "m.gguf", "zorblax")
    whys = []
    for write, expected in ((None, 1), (None, 1), (write_llama, 2), (None, 2)):
        if write:
            write(path)
        monkeypatch.setattr(model_fitness, "_seen", {})  # as in another process
        whys.append("zorblax" in IkVerifier().unfit_for(pin_of(path), options))
        assert len(asked) == expected
    assert whys == [True, True, False, False]


def test_a_child_that_somebody_ended_is_asked_again(
    pin_of: PinOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*words: str) -> dict[str, object]:
        raise child.ChildFailed("", child.signal.SIGKILL)

    pin = pin_of(write_llama(tmp_path / "m.gguf"))
    with monkeypatch.context() as patch:
        patch.setattr(model_fitness, "ask", killed)
        assert "SIGKILL" in IkVerifier().unfit_for(pin, OPTIONS)
    assert IkVerifier().unfit_for(pin, OPTIONS) == ""


def test_a_model_for_which_memory_is_short_is_not_called_broken(
    pin_of: PinOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
    (tmp_path / "sitecustomize.py").write_text(limit)  # read by the child when it starts
    pin, vast = pin_of(write_llama(tmp_path / "m.gguf")), write_vast(tmp_path / "vast.gguf")
    pin = replace(pin, weights=(WeightPin("", vast, vast.stat().st_size),))
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        why = IkVerifier().unfit_for(pin, OPTIONS)
    assert "could not be tried" in why
    assert "MemoryError" in why


def test_libllama_takes_what_it_loads() -> None:
    assert isinstance(IkVerifier(), RefusesModels)
    assert not isinstance(LlamaVerifier(), RefusesModels)
