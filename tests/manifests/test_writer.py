import errno
import json
import os

import pytest

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests import manifest as media
from pilotfish.manifests.fingerprints import verify_blob
from pilotfish.manifests.writer import human_number
from tests.manifests.builders import damage


def test_the_layout_is_ollamas(store, tiny):
    manifest = store.add_gguf(
        "tiny:1", tiny, template="{{ .Prompt }}", system="be brief", params={"stop": ["<|e|>"], "a": 1}
    )
    assert json.loads(manifest.path.read_bytes())["schemaVersion"] == 2
    assert [layer.media_type for layer in manifest.layers] == [media.MODEL, media.TEMPLATE, media.SYSTEM, media.PARAMS]
    config = json.loads(store.read(manifest.config))
    assert config == {
        "model_format": "gguf",
        "model_family": "llama",
        "model_families": ["llama"],
        "model_type": "1K",
        "file_type": "Q4_0",
        "architecture": "amd64",
        "os": "linux",
    }
    assert store.read(manifest.layers[3]) == b'{"a":1,"stop":["\\u003c|e|\\u003e"]}\n'
    for layer in (*manifest.layers, manifest.config):
        verify_blob(store.blob(layer), layer.digest)
    assert sorted(path.name for path in store.blobs.iterdir()) == sorted(
        {layer.digest.blob for layer in (*manifest.layers, manifest.config)}
    )


def test_weights_are_linked_not_copied(store, tiny):
    manifest = store.add_gguf("tiny", tiny)
    assert store.blob(manifest.layers[0]).samefile(tiny)


def test_weights_are_copied_where_links_are_impossible(store, tiny, monkeypatch):
    def refuse(source, target):
        raise OSError(errno.EXDEV, "cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    manifest = store.add_gguf("tiny", tiny)
    path = store.blob(manifest.layers[0])
    assert not path.samefile(tiny)
    assert path.read_bytes() == tiny.read_bytes()


def test_adding_again_changes_nothing_and_repairs_a_damaged_blob(store, tiny):
    first = store.add_gguf("tiny", tiny)
    again = store.add_gguf("tiny", tiny)
    assert again.digest == first.digest
    path = store.blob(first.layers[0])
    damage(path)
    store.add_gguf("tiny", tiny)
    assert path.read_bytes() == tiny.read_bytes()
    assert len(list(store.blobs.iterdir())) == 2


def test_a_symlinked_source_is_stored_as_a_file(store, tiny, tmp_path):
    linked = tmp_path / "linked.gguf"
    linked.symlink_to(tiny)
    path = store.blob(store.add_gguf("tiny", linked).layers[0])
    assert not path.is_symlink()


def test_what_is_no_gguf_is_refused_and_leaves_nothing(store, tmp_path):
    path = tmp_path / "text.gguf"
    path.write_text("hello")
    with pytest.raises(BrokenModel, match="not a GGUF"):
        store.add_gguf("text", path)
    assert not store.root.exists()


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (134515008, "134.52M"),
        (8030261248, "8.0B"),
        (2 * 10**9, "2B"),
        (5 * 10**6, "5M"),
        (1536, "2K"),
        (999, "999"),
        (0, "0"),
    ],
)
def test_parameter_sizes_are_written_as_ollama_does(count, shown):
    assert human_number(count) == shown


@pytest.mark.model
def test_a_real_model_is_described_as_ollama_describes_it(store, smollm2):
    config = store.config(store.add_gguf("smollm2:135m", smollm2))
    assert (config.model_family, config.model_type, config.file_type) == ("llama", "134.52M", "Q4_1")
