import struct

import pytest

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests.safetensors import read_header
from tests.manifests.builders import safetensors_bytes


def test_the_tensors_are_named_and_metadata_is_apart(tmp_path):
    path = tmp_path / "t"
    path.write_bytes(safetensors_bytes("a.weight", "a.weight.scale"))
    assert read_header(path).tensors == ("a.weight", "a.weight.scale")
    data = b'{"__metadata__": {"quant_type": "int4", "odd": 3}, "b": {}}'
    path.write_bytes(struct.pack("<Q", len(data)) + data)
    assert read_header(path).tensors == ("b",)
    assert read_header(path).metadata == {"quant_type": "int4"}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "header of 0 bytes"),
        (bytes(100), "header of 0 bytes"),
        (struct.pack("<Q", 2**62) + b"{}", "header of 4611686018427387904 bytes"),
        (struct.pack("<Q", 3) + b"{}", "header of 3 bytes"),
        (struct.pack("<Q", 2) + b"{x", "no readable safetensors header"),
        (struct.pack("<Q", 2) + b"[]", "not a JSON object"),
    ],
)
def test_a_broken_header_names_file_and_model(tmp_path, data, problem):
    path = tmp_path / "t"
    path.write_bytes(data)
    with pytest.raises(BrokenModel, match=problem) as error:
        read_header(path, "m:latest")
    assert f"{path} of m:latest" in str(error.value)


def test_a_missing_file_is_a_typed_error(tmp_path):
    with pytest.raises(BrokenModel, match="cannot be read"):
        read_header(tmp_path / "missing")
