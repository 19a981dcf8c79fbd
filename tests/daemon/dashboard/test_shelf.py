"""What the page says about models, as the config is."""

from __future__ import annotations

from pathlib import Path

from pilotfish.daemon.certify.certificate import CertificateStore, Identity
from pilotfish.daemon.certify.device import device_name
from pilotfish.daemon.config.reader import parse
from pilotfish.daemon.config.types import Config
from pilotfish.daemon.dashboard.shelf import Shelf
from pilotfish.hooks.types import Lane
from pilotfish.manifests import manifest as media
from pilotfish.manifests.store import Store
from tests.fakes.measured import certificate_of
from tests.manifests.builders import tiny_gguf, write_model


async def test_a_certificate_of_this_machine_is_none_once_far_ends_compute_the_model(tmp_path: Path) -> None:
    store, state, config = Store(tmp_path / "models"), tmp_path / "state", Config()
    write_model(store.root, "m", [(media.MODEL, tiny_gguf(tmp_path / "layer.gguf").read_bytes())], None)
    shelf = Shelf(store, state, config=lambda: config)
    await shelf.look(now=True)
    (name, found), *_ = shelf.models.items()
    identity = Identity(found.weights, (("llama", "build"),), device_name(), None, None, None, None, None, ())
    CertificateStore(state).put(certificate_of(identity, Lane("wide", (1, 2))))
    await shelf.look(now=True)
    assert shelf.models[name].verdict == "yes, certified"
    config = parse({"engine": {"rpc": ["a:1"]}})
    assert await shelf.look(now=True)
    assert shelf.models[name].certificate == ""
