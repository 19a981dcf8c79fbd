"""Registries of a folder's plugins, and two vocabularies that no built-in bridge connects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pilotfish.daemon.config.types import Config, Drafters, Plugins
from pilotfish.daemon.lab.fakes.fake_vocabulary import FakeVocabulary
from pilotfish.daemon.registry.registry import Registry
from pilotfish.hooks.types import TokenizerPin

OWN = FakeVocabulary(TokenizerPin("a" * 64, "gpt2", 100))
OTHER = FakeVocabulary(TokenizerPin("b" * 64, "gpt2", 100), [b"?%d" % i for i in range(100)])  # shares no piece


def load(folder: Path, **tables: dict[str, Any]) -> Registry:
    return Registry.load(Config(plugins=Plugins((folder,)), drafters=Drafters(tables=tables)))


def names(registry: Registry) -> list[str]:
    return [Path(plugin.name).name for plugin in registry.plugins if plugin.origin == "folder"]
