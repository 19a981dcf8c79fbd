"""Tiny models of a few architectures, made, quantized, loaded and asked. `pilotfish lab matrix` does it with all."""

from __future__ import annotations

import numpy as np
import pytest

from pilotfish.daemon.lab.tiny_models import making
from pilotfish.daemon.lab.tiny_models.catalogue import architectures
from pilotfish.daemon.lab.tiny_models.making import tiny_model, write
from pilotfish.manifests.gguf import read_metadata
from pilotfish.manifests.gguf_header import read_header


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_file_has_the_declared_keys_and_shapes(tmp_path):
    (architecture,) = architectures(["qwen35"])
    write(architecture, tmp_path / "tiny.gguf")
    header = read_header(tmp_path / "tiny.gguf")
    assert header.values["general.architecture"] == "qwen35"
    assert header.values["qwen35.block_count"] == 4
    assert "tokenizer.chat_template" not in header.values
    shapes = {tensor.name: tensor.shape[::-1] for tensor in header.tensors}
    assert shapes["token_embd.weight"] == (49152, 256)
    assert shapes["blk.0.ssm_a"] == (4,)
    assert shapes["blk.3.attn_q.weight"] == (512, 256)


def test_equal_declarations_give_equal_weights_and_another_seed_others(tmp_path):
    (architecture,) = architectures(["gemma3n"])
    paths = [tmp_path / f"{i}.gguf" for i in range(3)]
    for path, seed in zip(paths, (0, 0, 1), strict=True):
        write(architecture, path, seed)
    first, second, other = (path.read_bytes() for path in paths)
    assert first == second
    assert first != other


def test_what_was_made_is_not_made_again_and_never_left_half_done(cache, monkeypatch):
    (architecture,) = architectures(["gemma3n"])

    def interrupted(architecture, path, seed):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(making, "write", interrupted)
    with pytest.raises(OSError, match="disk full"):
        tiny_model(architecture, "F32")
    monkeypatch.undo()
    monkeypatch.setenv("PILOTFISH_CACHE", str(cache))
    whole = tiny_model(architecture, "F32")
    monkeypatch.setattr(making, "write", interrupted)
    assert tiny_model(architecture, "F32") == whole
    assert read_metadata(whole).architecture == "gemma3n"


@pytest.mark.model
def test_quantized_it_really_has_the_formats_weights(cache):
    (architecture,) = architectures(["lfm2"])
    for kind, types in (("Q4_K_M", {"Q4_K", "Q6_K"}), ("Q4_0", {"Q4_0", "Q6_K"}), ("Q8_0", {"Q8_0"})):
        found = read_metadata(tiny_model(architecture, kind))
        assert found.quantization == kind
        assert types <= found.matrix_types.keys()
        assert found.matrix_types.keys() <= types | {"F32"}  # the short convolutions


@pytest.mark.model
@pytest.mark.parametrize("name", ["llama", "gemma3n", "granitehybrid", "gpt-oss", "deepseek2"])
def test_it_loads_and_its_answers_are_no_monotone(cache, load_engine, name):
    from pilotfish.hooks.types import Lane, SamplingParams

    (architecture,) = architectures([name])
    engine = load_engine(tiny_model(architecture, "Q4_0"), Lane(), n_ctx=256)
    try:
        session = engine.open(range(100, 120), SamplingParams(temperature=0))
        while session.prefill():
            pass
        ids = []
        for _ in range(16):
            ids.append(session.verify([]).pick(0))
            session.commit(ids[-1:])
        assert len(set(ids)) > 4
        assert np.isfinite(session.slot.context.row(0)).all()
    finally:
        engine.close()
