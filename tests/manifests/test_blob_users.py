"""Whose weights a file is."""

from __future__ import annotations

import pytest

from pilotfish.manifests.blob_users import blob_of
from pilotfish.manifests.pins import pin_file
from tests.fakes.scans import scans


@pytest.fixture
def path(store, tiny):
    store.add_gguf("hf.co/me/b:1", tiny)
    store.add_gguf("a:1", tiny)
    return store.blob(store.manifest("a:1").weights[0])


def test_every_model_that_has_the_weights_by_name(path):
    blob = blob_of(path)
    assert [user.name.short for user in blob.users] == ["a:1", "hf.co/me/b:1"]
    assert blob.digest.blob == path.name


def test_a_broken_manifest_is_nobodys(store, path):
    (store.manifests / "registry.ollama.ai" / "library" / "a" / "torn").write_text(path.name)
    assert len(blob_of(path).users) == 2


def test_a_file_outside_of_a_store_is_no_blob(tiny):
    assert blob_of(tiny) is None


def test_a_pin_needs_no_second_look(store, path, tmp_path):
    blob = blob_of(path)
    with scans(store.manifests) as seen:
        pin = pin_file(path, tmp_path / "state", blob=blob)
    assert seen == []
    with scans(store.manifests) as seen:
        assert pin_file(path, tmp_path / "state") == pin
    assert len(seen) == 1
