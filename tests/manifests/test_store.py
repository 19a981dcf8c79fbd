import errno
import json
import logging
import os
from pathlib import Path

import pytest

from pilotfish.hooks.errors import BrokenModel, ConfigError, ModelNotFound
from pilotfish.manifests import manifest as media
from pilotfish.manifests import store as store_module
from pilotfish.manifests.digests import Digest
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store, default_root
from tests.manifests.builders import write_model


def names(store: Store) -> list[str]:
    return [manifest.name.short for manifest in store.models().models]


def test_an_empty_or_missing_store_lists_nothing(store):
    assert store.models() == store_module.Listing((), ())


def test_models_are_listed_by_their_short_names(store):
    for name in ("b:1", "me/a", "example.com:5000/x/y:z", "a"):
        write_model(store.root, name, [(media.MODEL, name.encode())])
    assert names(store) == ["a:latest", "b:1", "example.com:5000/x/y:z", "me/a:latest"]


def test_a_broken_manifest_is_skipped_with_a_reason_and_the_rest_are_listed(store, caplog):
    write_model(store.root, "good", [(media.MODEL, b"x")])
    empty = write_model(store.root, "empty", [])
    empty.write_bytes(b"")
    digest = write_model(store.root, "digest", [(media.MODEL, b"x")])
    digest.write_text(json.dumps({"layers": [{"digest": "sha256:../../../etc/passwd"}]}))
    dangling = store.manifests / ModelName.parse("dangling").path
    dangling.parent.mkdir(parents=True)
    dangling.symlink_to(store.root / "nowhere")
    with caplog.at_level(logging.WARNING, "pilotfish.store"):
        listing = store.models()
    assert [manifest.name.short for manifest in listing.models] == ["good:latest"]
    reasons = {entry.path: entry.reason for entry in listing.skipped}
    assert "is empty" in reasons[empty]
    assert "is not a digest" in reasons[digest]
    assert "is gone" in reasons[dangling]
    assert all(str(path) in caplog.text for path in reasons)


def test_files_that_are_no_manifests_are_no_models(store):
    path = write_model(store.root, "good", [(media.MODEL, b"x")])
    (path.parent / ".DS_Store").write_bytes(b"x")
    (store.manifests / "README").write_bytes(b"x")
    (path.parent / "deeper" / "still").mkdir(parents=True)
    assert names(store) == ["good:latest"]
    assert store.models().skipped == ()
    (path.parent / "-bad").write_bytes(b"{}")
    assert "the tag '-bad' is not allowed" in store.models().skipped[0].reason


def test_any_part_of_the_tree_may_be_a_symlink(store, tmp_path):
    write_model(store.root, "m:t", [(media.MODEL, b"weights")])
    for part in ("manifests", "blobs"):
        (store.root / part).rename(tmp_path / f"other-{part}")
        (store.root / part).symlink_to(tmp_path / f"other-{part}")
    linked = tmp_path / "linked"
    linked.symlink_to(store.root)
    manifest = Store(linked).manifest("m:t")
    assert names(Store(linked)) == ["m:t"]
    assert Store(linked).blob(manifest.layers[0]).read_bytes() == b"weights"


def test_a_folder_that_links_to_its_parent_ends(store):
    path = write_model(store.root, "m", [(media.MODEL, b"x")])
    (path.parent / "loop").symlink_to(store.manifests)
    assert names(store) == ["m:latest"]


def test_the_exact_spelling_wins_and_case_is_forgiven(store):
    write_model(store.root, "SmolLM2:135M", [(media.MODEL, b"x")])
    assert store.manifest("smollm2:135m").name.short == "SmolLM2:135M"
    write_model(store.root, "smollm2:135m", [(media.MODEL, b"y")])
    assert store.manifest("smollm2:135m").name.short == "smollm2:135m"
    assert store.manifest("SmolLM2:135M").name.short == "SmolLM2:135M"


def test_an_unknown_model_is_named_with_the_remedy(store):
    with pytest.raises(ModelNotFound, match=r"'nope:latest' not found .* ollama pull nope:latest"):
        store.manifest("nope")


def test_a_digest_in_either_spelling_leads_to_the_blob(store):
    manifest = write_model(store.root, "m", [(media.MODEL, b"weights")])
    digest = json.loads(manifest.read_text())["layers"][0]["digest"]
    assert store.blob(digest) == store.blob(digest.replace(":", "-")) == store.blob(Digest.parse(digest))


@pytest.mark.parametrize("digest", ["../secret", "sha256:../../secret", "sha256-:" + "a" * 64, "sha256:ab", ""])
def test_what_is_no_digest_leads_nowhere(store, digest):
    with pytest.raises(BrokenModel, match="not a digest"):
        store.blob(digest)


def test_a_missing_or_short_blob_is_named_with_its_model(store):
    write_model(store.root, "m", [(media.MODEL, b"weights")])
    manifest = store.manifest("m")
    path = store.blob(manifest.layers[0])
    path.write_bytes(b"weig")
    with pytest.raises(BrokenModel, match=rf"{path} of m:latest has 4 bytes, its manifest says 7"):
        store.blob(manifest.layers[0], manifest.name)
    path.unlink()
    with pytest.raises(BrokenModel, match=rf"{path} of m:latest cannot be read"):
        store.blob(manifest.layers[0], manifest.name)


def test_a_blob_that_may_not_be_read_is_a_typed_error(store, monkeypatch):
    write_model(store.root, "m", [(media.SYSTEM, b"be brief")])

    def refuse(path, mode="r"):
        raise PermissionError(errno.EACCES, "Permission denied")

    manifest = store.manifest("m")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(BrokenModel, match=r"of m:latest cannot be read \(Permission denied\)"):
        store.text(manifest, media.SYSTEM)


def test_texts_and_params_are_read_from_their_layers(store):
    layers = [(media.TEMPLATE, "{{ .Prompt }} é".encode()), (media.PARAMS, b'{"stop": ["x"]}')]
    write_model(store.root, "m", layers, {"model_family": "llama"})
    manifest = store.manifest("m")
    assert store.text(manifest, media.TEMPLATE, media.PROMPT) == "{{ .Prompt }} é"
    assert store.text(manifest, media.SYSTEM) is None
    assert store.params(manifest) == {"stop": ["x"]}
    assert store.config(manifest).model_family == "llama"


@pytest.mark.parametrize("data", [b"[1]", b"{"])
def test_params_that_are_no_object_are_a_typed_error(store, data):
    write_model(store.root, "m", [(media.PARAMS, data)])
    with pytest.raises(BrokenModel, match="params of m:latest"):
        store.params(store.manifest("m"))


def test_the_root_is_the_variables_then_the_users_then_the_services(tmp_path, monkeypatch):
    service, home = tmp_path / "service", tmp_path / "home"
    monkeypatch.setattr(store_module, "SERVICE_ROOT", service)
    monkeypatch.setattr(Path, "home", lambda: home)
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    assert default_root() == home / ".ollama" / "models"
    (service / "manifests").mkdir(parents=True)
    assert default_root() == service
    (home / ".ollama" / "models" / "manifests").mkdir(parents=True)
    assert default_root() == home / ".ollama" / "models"
    monkeypatch.setenv("OLLAMA_MODELS", f'"{tmp_path}/elsewhere"')
    assert default_root() == Store.find().root == tmp_path / "elsewhere"


def test_a_path_is_taken_as_ollama_takes_it(monkeypatch):
    monkeypatch.setenv("OLLAMA_MODELS", "~/x")
    with pytest.raises(ConfigError, match="OLLAMA_MODELS: ~/x is not absolute"):
        default_root()


def test_without_a_home_folder_there_is_the_services_store_or_none(tmp_path, monkeypatch):
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as it is left for a user that has none
    monkeypatch.setattr(store_module, "SERVICE_ROOT", tmp_path)
    assert default_root() == tmp_path
    monkeypatch.setattr(store_module, "SERVICE_ROOT", tmp_path / "none")
    with pytest.raises(ConfigError, match=r"~/\.ollama/models cannot be found"):
        default_root()


def test_a_blobs_path_leads_to_its_store(store, tmp_path):
    write_model(store.root, "m", [(media.MODEL, b"x")])
    path = store.blob(store.manifest("m").layers[0])
    assert Store.of_blob(path).root == store.root
    linked = tmp_path / "anywhere.gguf"
    linked.symlink_to(path)
    assert Store.of_blob(linked).root == store.root
    assert Store.of_blob(tmp_path / "other.gguf") is None


def test_a_folder_that_may_not_be_read_is_skipped(store, monkeypatch):
    closed = write_model(store.root, "me/m", [(media.MODEL, b"x")]).parent
    write_model(store.root, "good", [(media.MODEL, b"x")])
    iterdir = Path.iterdir

    def refuse(path):
        if path == closed:
            raise PermissionError(errno.EACCES, "Permission denied")
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    listing = store.models()
    assert [manifest.name.short for manifest in listing.models] == ["good:latest"]
    assert listing.skipped[0] == store_module.Skipped(closed, "cannot be listed: Permission denied")
