import hashlib
import json
from pathlib import Path

import pytest

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests import manifest as media
from pilotfish.manifests.manifest import parse_config, parse_manifest
from pilotfish.manifests.names import ModelName

NAME = ModelName.parse("smollm2:135m")
HEX = "cd" * 32


def parse(table):
    return parse_manifest(json.dumps(table).encode(), NAME, Path("m"))


def layer(**fields):
    return {"mediaType": media.MODEL, "digest": f"sha256:{HEX}", "size": 7, **fields}


def test_layers_keep_their_order_and_names():
    found = parse(
        {"config": layer(size=1), "layers": [layer(name="a"), layer(mediaType=media.JSON, name="config.json")]}
    )
    assert [entry.name for entry in found.layers] == ["a", "config.json"]
    assert found.of_type(media.JSON)[0].digest.hex == HEX
    assert found.size == 15


def test_the_digest_is_that_of_the_bytes_in_the_file():
    data = b'{"layers": []}\n'
    assert parse_manifest(data, NAME, Path("m")).digest == hashlib.sha256(data).hexdigest()


def test_the_last_layer_of_a_type_counts():
    found = parse({"layers": [layer(mediaType=media.PROMPT, size=1), layer(mediaType=media.TEMPLATE, size=2)]})
    assert found.last(media.TEMPLATE, media.PROMPT).size == 2
    assert found.last(media.SYSTEM) is None


def test_a_manifest_without_a_config_is_a_manifest():
    assert parse({"config": {"digest": ""}, "layers": [layer()]}).config is None
    assert parse({"layers": None}).layers == ()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (bytes(50), "is not JSON"),
        (b'{"layers":', "is not JSON"),
        (b"\xff\xfe{}", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"layers": 3}', "layers is not a list"),
        (b'{"layers": [3]}', "layer 0 is not an object"),
        (b'{"layers": [{"digest": "sha256-:ab"}]}', "layer 0: 'sha256-:ab' is not a digest"),
        (b'{"layers": [{"digest": "../../etc/passwd"}]}', "layer 0: .* is not a digest"),
        (b'{"config": {"digest": "sha256:12"}}', "config: 'sha256:12' is not a digest"),
    ],
)
def test_a_broken_manifest_names_the_model_and_the_place(data, problem):
    with pytest.raises(BrokenModel, match=problem) as error:
        parse_manifest(data, NAME, Path("m"))
    assert "smollm2:135m" in str(error.value)


def test_a_config_is_read_and_odd_fields_count_as_absent():
    table = {
        "model_format": "gguf",
        "model_families": ["llama", 3],
        "file_type": 7,
        "draft": {"tensor_prefix": "draft."},
    }
    found = parse_config(json.dumps(table).encode(), "config")
    assert (found.model_format, found.model_families, found.file_type) == ("gguf", ("llama",), "")
    assert found.draft.tensor_prefix == "draft."
    assert parse_config(b"{}", "config").draft is None
