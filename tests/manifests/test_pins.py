import hashlib
import json

import pytest

from pilotfish.hooks.errors import BrokenModel, ModelNotFound
from pilotfish.manifests import manifest as media
from pilotfish.manifests.pins import pin_file, pin_model
from tests.manifests.builders import damage, safetensors_bytes, tiny_gguf, write_model


@pytest.fixture
def added(store, tiny):
    return store.add_gguf("tiny:1", tiny)


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def test_a_pin_says_what_a_model_is(store, added, tiny, state):
    pin = pin_model(store, "tiny:1", state)
    assert (pin.name, pin.manifest_digest, pin.format) == ("tiny:1", added.digest, "gguf")
    assert (pin.architecture, pin.quantization) == ("llama", "Q4_0")
    assert pin.weights[0].digest == f"sha256:{hashlib.sha256(tiny.read_bytes()).hexdigest()}"
    assert pin.path == store.blob(added.layers[0])
    assert pin.tokenizer.n_vocab == 4


def test_an_unknown_model_cannot_be_pinned(store, state):
    with pytest.raises(ModelNotFound, match="nope"):
        pin_model(store, "nope", state)


@pytest.mark.parametrize("verify", [True, False])
def test_a_zeroed_blob_is_refused_naming_blob_and_model(store, added, state, verify):
    path = store.blob(added.layers[0])
    damage(path)
    with pytest.raises(BrokenModel) as error:
        pin_model(store, "tiny:1", state, verify=verify)
    assert str(path) in str(error.value)
    assert "tiny:1" in str(error.value)


def flip(path):
    """Change a byte of the weights, which the header knows nothing of, in a copy of its own."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(data)


def test_changed_weights_behind_a_sound_header_are_noticed_by_hash(store, added, state):
    path = store.blob(added.layers[0])
    flip(path)
    with pytest.raises(BrokenModel, match=rf"blob {path} of tiny:1 was damaged"):
        pin_model(store, "tiny:1", state)
    pin_model(store, "tiny:1", state.parent / "fresh", verify=False)


def test_a_missing_blob_is_refused(store, added, state):
    store.blob(added.layers[0]).unlink()
    with pytest.raises(BrokenModel, match="of tiny:1 cannot be read"):
        pin_model(store, "tiny:1", state)


def test_a_blobs_path_finds_its_model(store, added, state):
    assert pin_file(store.blob(added.layers[0]), state) == pin_model(store, "tiny:1", state)


def test_of_several_models_with_one_blob_the_first_by_name_is_taken(store, added, tiny, state):
    store.add_gguf("another", tiny, system="be brief")
    assert pin_file(store.blob(added.layers[0]), state).name == "another:latest"


def test_a_symlink_to_a_blob_finds_its_model(store, added, state, tmp_path):
    linked = tmp_path / "linked.gguf"
    linked.symlink_to(store.blob(added.layers[0]))
    assert pin_file(linked, state).name == "tiny:1"


def test_a_bare_file_is_pinned_by_its_bytes(tiny, state):
    pin = pin_file(tiny, state)
    assert (pin.name, pin.manifest_digest, pin.path) == ("tiny.gguf", None, tiny)
    assert pin_file(tiny, state) == pin
    flip(tiny)
    assert pin_file(tiny, state) != pin


def test_a_blob_that_no_manifest_refers_to_is_still_verified(store, added, state):
    added.path.unlink()
    path = store.blob(added.layers[0])
    assert pin_file(path, state).manifest_digest is None
    flip(path)
    with pytest.raises(BrokenModel, match="was damaged"):
        pin_file(path, state)


def test_split_files_are_pinned_in_their_own_order(store, state, tmp_path):
    parts = [tiny_gguf(tmp_path / f"{i}.gguf", values={"split.no": i, "split.count": 2}).read_bytes() for i in (0, 1)]
    write_model(store.root, "split", [(media.MODEL, parts[1]), (media.MODEL, parts[0])])
    pin = pin_model(store, "split", state)
    assert [weight.path.read_bytes() for weight in pin.weights] == parts
    assert pin_file(pin.weights[1].path, state).path == pin.weights[1].path


def test_an_mlx_model_is_pinned_by_its_tensors(store, state):
    layers = [(media.TENSOR, safetensors_bytes("a"), "a"), (media.TENSOR, safetensors_bytes("b"), "b")]
    write_model(
        store.root, "mlx", layers, {"model_format": "safetensors", "model_family": "gemma3", "file_type": "int4"}
    )
    pin = pin_model(store, "mlx", state)
    assert (pin.format, pin.architecture, pin.quantization, len(pin.weights)) == ("safetensors", "gemma3", "int4", 2)


def test_a_model_without_weights_cannot_be_pinned(store, state):
    write_model(store.root, "empty", [(media.TEMPLATE, b"t")])
    with pytest.raises(BrokenModel, match="empty:latest has no weights"):
        pin_model(store, "empty", state)


def test_an_old_digest_spelling_pins_the_same(store, added, state):
    pin = pin_model(store, "tiny:1", state)
    table = json.loads(added.path.read_text())
    table["layers"][0]["digest"] = table["layers"][0]["digest"].replace(":", "-")
    added.path.write_text(json.dumps(table))
    assert pin_model(store, "tiny:1", state).weights == pin.weights
