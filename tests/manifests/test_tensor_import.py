import json

import numpy as np
import pytest

from pilotfish.hooks.errors import BrokenModel, ModelNotFound, UsageError
from pilotfish.manifests import tensor_import
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.quantization import Quantization
from pilotfish.manifests.tensor_folder import INDEX, read_folder
from pilotfish.manifests.tensor_import import import_folder
from pilotfish.manifests.tensor_layers import TensorLayers
from tests.manifests.builders import safetensors_of

ROWS = np.arange(6, dtype=np.float16).reshape(2, 3)
PLAIN = ("F16", ROWS)
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
NAME = ModelName.parse("m")


@pytest.fixture
def folder(tmp_path):
    """Make a folder of `{file: tensors}`."""

    def folder(weights, config=CONFIG, name="model", **files):
        path = tmp_path / name
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps(config))
        for file, tensors in weights.items():
            (path / file).write_bytes(safetensors_of(tensors))
        for file, text in files.items():
            (path / file.replace("__", ".")).write_text(text)
        return path

    return folder


@pytest.fixture
def imported(store, folder):
    def imported(*arguments, **options):
        import_folder(store.root, NAME, read_folder(folder(*arguments, **options)))
        return TensorLayers.of(store.manifest(NAME), store)

    return imported


def test_every_tensor_becomes_a_blob_and_every_file_a_layer(imported, store):
    found = imported(
        {"model.safetensors": {"b.bias": PLAIN, "a.weight": ("BF16", ROWS.view(np.uint16))}},
        tokenizer__json="{}",
        chat_template__jinja="{{ x }}",
        readme__md="no",
    )
    assert found.names == ("a.weight", "b.bias")
    assert found.dtype("a.weight") == "BF16"
    np.testing.assert_array_equal(found.array("b.bias"), ROWS)
    assert [layer.name for layer in found.manifest.layers[2:]] == [
        "chat_template.jinja",
        "config.json",
        "tokenizer.json",
    ]
    assert store.config(found.manifest).model_family == "llama"
    found.verify()


def test_a_quantized_tensor_is_one_blob_with_its_companions(imported):
    scales = ("F16", np.ones((2, 1), np.float16))
    words = ("U32", np.ones((2, 8), np.uint32))
    weights = {"x.weight": words, "x.scales": scales, "x.biases": scales, "y.scales": PLAIN, "z.bias": PLAIN}
    found = imported(
        {"model.safetensors": weights}, CONFIG | {"quantization": {"group_size": 64, "bits": 4, "mode": "affine"}}
    )
    assert set(found.names) == {"x.weight", "x.weight.scale", "x.weight.bias", "y.scales", "z.bias"}
    assert found.layer_of("x.weight.bias").name == "x.weight"
    assert found.quantization == found.quantization_of("x.weight") == Quantization("affine", 64, 4)


def test_a_file_with_one_tensor_is_linked(imported, folder):
    files = {"model-1.safetensors": {"a": PLAIN}, "model-2.safetensors": {"b": PLAIN, "c": PLAIN}}
    found = imported(files)
    path = folder({})
    assert found.path_of("a").samefile(path / "model-1.safetensors")
    assert not found.path_of("b").samefile(path / "model-2.safetensors")


def test_a_drafter_is_bundled_under_its_prefixes(store, folder):
    model, draft = (
        folder({"model.safetensors": {"a": PLAIN}}),
        folder({"model.safetensors": {"a": PLAIN}}, name="draft"),
    )
    import_folder(store.root, NAME, read_folder(model), draft=read_folder(draft))
    found = TensorLayers.of(store.manifest(NAME), store)
    assert found.draft is not None
    assert (found.names, found.draft.names, found.draft.json("config.json")) == (("a",), ("a",), CONFIG)


@pytest.mark.parametrize("trouble", [KeyboardInterrupt, OSError])
def test_an_import_that_ends_early_lists_nothing_and_can_be_repeated(imported, store, monkeypatch, trouble):
    def written(root, name, tensors, metadata):
        if name == "b":
            raise trouble
        return original(root, name, tensors, metadata)

    original = tensor_import.add_tensors
    monkeypatch.setattr(tensor_import, "add_tensors", written)
    with pytest.raises(trouble):
        imported({"model.safetensors": {"a": PLAIN, "b": PLAIN}})
    assert store.models().models == ()
    monkeypatch.undo()
    assert imported({"model.safetensors": {"a": PLAIN, "b": PLAIN}}).names == ("a", "b")


def test_a_file_that_gets_shorter_meanwhile_is_named(store, folder):
    path = folder({"model.safetensors": {"a": PLAIN, "b": PLAIN}})
    model = read_folder(path)
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(BrokenModel, match=r"model\.safetensors changed while it was read: tensor b has 11 bytes"):
        import_folder(store.root, NAME, model)
    assert store.models().models == ()


@pytest.mark.parametrize(
    ("weights", "files", "error", "problem"),
    [
        ({}, {}, ModelNotFound, r"holds no model\*\.safetensors; convert"),
        ({}, {"m__gguf": ""}, ModelNotFound, "it has a GGUF"),
        ({"model.safetensors": {"a": PLAIN}, "model-1.safetensors": {"a": PLAIN}}, {}, BrokenModel, "and others"),
        ({"model-1.safetensors": {"a": PLAIN}, "model-2.safetensors": {"a": PLAIN}}, {}, BrokenModel, "tensor a is in"),
        ({"model.safetensors": {"a.qweight": PLAIN}}, {}, UsageError, r"tensor a\.qweight .* mlx_lm\.convert"),
        ({"model.safetensors": {"a": ("F8_E4M3", ROWS.view(np.uint8))}}, {}, UsageError, "F8_E4M3"),
        ({"model.safetensors": {"a": PLAIN}}, {"config__json": "["}, BrokenModel, "is not JSON"),
        ({"model.safetensors": {"a": PLAIN}}, {INDEX.replace(".", "__"): "{}"}, BrokenModel, "no usable weight_map"),
        (
            {"model.safetensors": {"a": PLAIN}},
            {INDEX.replace(".", "__"): '{"weight_map": {"b": "model.safetensors"}}'},
            BrokenModel,
            r"has tensor b in model\.safetensors, where it is not",
        ),
        (
            {"model.safetensors": {"a": PLAIN}},
            {INDEX.replace(".", "__"): '{"weight_map": {"a": "../model.safetensors"}}'},
            BrokenModel,
            "no usable weight_map",
        ),
    ],
)
def test_a_folder_that_cannot_be_imported_says_why(store, folder, weights, files, error, problem):
    with pytest.raises(error, match=problem):
        import_folder(store.root, NAME, read_folder(folder(weights, **files)))


def test_a_folder_without_a_config_is_no_model(tmp_path):
    with pytest.raises(ModelNotFound, match=r"holds no config\.json"):
        read_folder(tmp_path)
