import hashlib
import struct

import numpy as np
import pytest

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests import manifest as media
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.quantization import Quantization
from pilotfish.manifests.tensor_layers import TensorLayers
from pilotfish.manifests.tensor_writer import (
    NewTensor,
    add_json,
    add_tensors,
    quantized_metadata,
    write_tensor_model,
)

ROWS = np.arange(6, dtype=np.float16).reshape(2, 3)


def test_a_plain_tensors_blob_is_ollamas_to_the_byte(store):
    layer = add_tensors(store.root, "a.weight", [NewTensor.of("a.weight", ROWS)])
    header = b'{"a.weight":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]}}'
    expected = struct.pack("<Q", 64) + header + ROWS.tobytes()
    assert len(header) == 64
    assert store.blob(layer).read_bytes() == expected
    assert (layer.name, layer.media_type, layer.digest.hex) == (
        "a.weight",
        media.TENSOR,
        hashlib.sha256(expected).hexdigest(),
    )


def test_what_is_written_is_read(store):
    four_bits = Quantization("affine", 64, 4)
    words, scales = np.full((2, 8), 7, np.uint32), np.ones((2, 1), np.float16)
    parts = {"x.weight": words, "x.weight.scale": scales, "x.weight.bias": scales}
    layers = [
        add_tensors(root := store.root, "b", [NewTensor.of("b", np.array([0x3F80], np.uint16), "BF16")]),
        add_tensors(root, "x.weight", [NewTensor.of(*part) for part in parts.items()], quantized_metadata(four_bits)),
        add_tensors(root, "draft.b", [NewTensor.of("draft.b", ROWS)]),
        add_json(root, "config.json", {"model_type": "llama"}),
        add_json(root, "draft/config.json", {"model_type": "helper"}),
    ]
    write_tensor_model(
        root, ModelName.parse("m"), layers, family="llama", file_type="int4", draft_architecture="Helper"
    )
    found = TensorLayers.of(store.manifest("m"), store)
    assert (found.dtype("b"), found.array("b").tolist()) == ("BF16", [0x3F80])
    assert found.quantization_of("x.weight") == four_bits
    np.testing.assert_array_equal(found.array("x.weight"), words)
    assert found.draft is not None
    np.testing.assert_array_equal(found.draft.array("b"), ROWS)
    assert found.draft.json("config.json") == {"model_type": "helper"}
    config = store.config(store.manifest("m"))
    assert config.draft is not None
    assert (config.model_format, config.draft.architecture) == ("safetensors", "Helper")


@pytest.mark.parametrize("chunks", [[b"1234567"], [b"12345678", b"9"]])
def test_a_source_of_another_length_leaves_no_blob(store, chunks):
    with pytest.raises(BrokenModel, match=r"tensor a has \d bytes, not 8"):
        add_tensors(store.root, "a", [NewTensor("a", "U8", (8,), 8, lambda: chunks)])
    assert list(store.blobs.iterdir()) == []
