import json
import struct
import time

import numpy as np
import pytest

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests import layer_digests
from pilotfish.manifests import manifest as media
from pilotfish.manifests.quantization import Quantization
from pilotfish.manifests.remembered import SETTLED_SECONDS
from pilotfish.manifests.tensor_layers import TensorLayers
from tests.manifests.builders import damage, safetensors_bytes, safetensors_of, write_model

CONFIG = {"model_type": "llama", "mtp_layers": 0}
ROWS = np.arange(12, dtype=np.float16).reshape(3, 4)


def packed(name, columns, scales, metadata=None, biases=True):
    """A quantized tensor of two rows, as Ollama stores it."""
    ones = ("F16", np.ones((2, scales), np.float16))
    parts = {name: ("U32", np.ones((2, columns), np.uint32)), f"{name}.scale": ones}
    return safetensors_of({**parts, **({f"{name}.bias": ones} if biases else {})}, metadata)


@pytest.fixture
def opened(store):
    def opened(*layers, config=None, files=CONFIG):
        written = [(media.TENSOR, data, name) for name, data in layers]
        written.append((media.JSON, json.dumps(files).encode(), "config.json"))
        write_model(store.root, "m", written, config or {"model_format": "safetensors"})
        return TensorLayers.of(store.manifest("m"), store)

    return opened


def test_a_tensor_is_mapped_with_the_shape_and_type_of_its_header(opened):
    half = np.array([0x3F80, 0xC000], np.uint16)  # 1.0 and -2.0 in bfloat16
    found = opened(
        ("a.weight", safetensors_of({"a.weight": ("F16", ROWS)})),
        ("b", safetensors_of({"b": ("BF16", half), "b.x": ("F32", np.float32(3.5)), "b.y": ("F16", ROWS[:0])})),
    )
    assert found.names == ("a.weight", "b", "b.x", "b.y")
    np.testing.assert_array_equal(found.array("a.weight"), ROWS)
    assert not found.array("a.weight").flags.writeable
    assert (found.dtype("b"), found.array("b").dtype, found.array("b").tolist()) == (
        "BF16",
        np.uint16,
        [0x3F80, 0xC000],
    )
    assert found.array("b.x") == 3.5
    assert found.array("b.y").shape == (0, 4)
    assert found.path_of("b") == found.path_of("b.x") != found.path_of("a.weight")


def test_files_are_found_by_name_and_read_as_objects(opened):
    found = opened(("a", safetensors_bytes("a")))
    assert found.json("config.json") == CONFIG
    assert found.file("tokenizer.json") is None
    with pytest.raises(BrokenModel, match=r"tokenizer\.json of m:latest is not in the manifest"):
        found.json("tokenizer.json")


def test_the_bundled_drafter_has_its_own_names_and_files(store):
    layers = [
        (media.TENSOR, safetensors_bytes("a"), "a"),
        (media.TENSOR, safetensors_bytes("helper.a"), "helper.a"),
        (media.JSON, b'{"n": 1}', "config.json"),
        (media.JSON, b'{"n": 2}', "helper/config.json"),
    ]
    draft = {"tensor_prefix": "helper.", "config": "helper/config.json"}
    write_model(store.root, "m", layers, {"draft": draft})
    found = TensorLayers.of(store.manifest("m"), store)
    assert (found.names, found.json("config.json")) == (("a",), {"n": 1})
    assert found.draft is not None
    assert (found.draft.names, found.draft.json("config.json")) == (("a",), {"n": 2})
    assert found.draft.path_of("a") != found.path_of("a")


@pytest.mark.parametrize(
    ("data", "config", "expected"),
    [
        (packed("x.weight", 8, 1, {"quant_type": "int4", "group_size": "64"}), {}, Quantization("affine", 64, 4)),
        (packed("x.weight", 16, 1, {"quant_type": "int8"}), {}, Quantization("affine", 64, 8)),
        (packed("x.weight", 8, 4, {"quant_type": "nvfp4"}, False), {}, Quantization("nvfp4", 16, 4)),
        (packed("x.weight", 8, 1, {"x.weight.quant_type": "mxfp8"}, False), {}, Quantization("mxfp8", 32, 8)),
        (packed("x.weight", 8, 1), {"quantization": {"group_size": 32, "bits": 8}}, Quantization("affine", 32, 8)),
        (
            packed("x.weight", 8, 1, {"quant_type": "int4"}),
            {"quantization": {"group_size": 64, "bits": 4, "x": {"group_size": 32, "bits": 8}}},
            Quantization("affine", 32, 8),
        ),
        (packed("x.weight", 16, 2, {"quant_type": "int8", "group_size": "64"}), {}, Quantization("affine", 32, 8)),
        (packed("x.weight", 8, 1), {}, Quantization("affine", 64, 4)),
    ],
)
def test_what_a_tensor_is_quantized_as_is_said_somewhere(opened, data, config, expected):
    found = opened(("x.weight", data), files=CONFIG | config)
    assert found.quantization_of("x.weight") == expected
    assert found.mlx_names()["x.weight.scale"] == "x.scales"


def test_an_unknown_quantization_is_no_guess(opened):
    with pytest.raises(BrokenModel, match=r"tensor x\.weight of layer x\.weight.*7 words and 1 scales"):
        opened(("x.weight", packed("x.weight", 7, 1))).quantization_of("x.weight")


def test_a_bias_of_a_plain_tensor_keeps_its_name(opened):
    found = opened(("x.weight", safetensors_bytes("x.weight")), ("x.bias", safetensors_bytes("x.bias")))
    assert found.mlx_names() == {"x.weight": "x.weight", "x.bias": "x.bias"}
    assert found.quantization is None


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda path: path.unlink(), "cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "its manifest says"),
        (damage, "header of 0 bytes"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b'"b"', b'"c"')), "holds c and no tensor b.*swapped"),
    ],
)
def test_a_broken_blob_names_model_layer_and_tensor(opened, store, spoil, problem):
    found = opened(("a", safetensors_bytes("a")), ("b", safetensors_bytes("b")))
    spoil(found.path_of("b"))
    with pytest.raises(BrokenModel, match=f"m:latest: tensor layer b: .*{problem}"):
        TensorLayers.of(store.manifest("m"), store)


def test_other_bytes_under_the_same_header_are_seen_by_their_digest(opened, tmp_path):
    found = opened(("a", safetensors_of({"a": ("F16", ROWS)})), ("b", safetensors_of({"b": ("F16", ROWS)})))
    found.verify(tmp_path / "state")
    path = found.path_of("b")
    path.write_bytes(path.read_bytes()[:-2] + b"\1\2")
    with pytest.raises(BrokenModel, match=r"m:latest: tensor layer b: .*was damaged"):
        found.verify(tmp_path / "state")


def test_blobs_are_hashed_once_for_each_state_of_all(opened, tmp_path, monkeypatch):
    found = opened(("a", safetensors_bytes("a")), ("b", safetensors_bytes("b")))
    time.sleep(2 * SETTLED_SECONDS)
    hashed = []
    monkeypatch.setattr(layer_digests, "verify_blob", lambda path, *_: hashed.append(path))
    assert not found.verified_before(tmp_path / "state")
    for _ in range(2):
        found.verify(tmp_path / "state")
    assert len(hashed) == 3  # two tensors and config.json
    assert found.verified_before(tmp_path / "state")
    found.path_of("a").touch()
    assert not found.verified_before(tmp_path / "state")


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"dtype": "F16", "shape": [2], "data_offsets": [0, 2]}, "no F16 of shape"),
        ({"dtype": "F16", "shape": [3], "data_offsets": [0, 6]}, "truncated"),
        ({"dtype": "Q9", "shape": [1], "data_offsets": [0, 1]}, "malformed"),
        ({"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]}, "malformed"),
        ({"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}, "malformed"),
        (None, "malformed"),
    ],
)
def test_a_malformed_entry_names_its_tensor(opened, entry, problem):
    head = json.dumps({"a": entry}).encode()
    with pytest.raises(BrokenModel, match=f"layer a: .*tensor a.*{problem}"):
        opened(("a", struct.pack("<Q", len(head)) + head + bytes(4)))


def test_one_name_in_two_layers_is_refused(opened):
    with pytest.raises(BrokenModel, match=r"tensor b\.x is in two layers, b\.x and b"):
        opened(("b.x", safetensors_bytes("b.x")), ("b", safetensors_bytes("b.y", "b.x")))
