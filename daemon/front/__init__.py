"""The embedded front: a server with Ollama's API for when no Ollama is involved."""

from __future__ import annotations

from pilotfish.daemon.front.app import create_app, embedded, running, serve
from pilotfish.daemon.front.settings import FrontSettings, settings_from_env

__all__ = ["FrontSettings", "create_app", "embedded", "running", "serve", "settings_from_env"]
