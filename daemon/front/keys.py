"""What the application carries, under typed keys."""

from __future__ import annotations

from aiohttp import web

from pilotfish.daemon.front.catalog import Catalog
from pilotfish.daemon.front.inference import Inference
from pilotfish.daemon.front.runners import Runners
from pilotfish.daemon.front.settings import FrontSettings

SETTINGS = web.AppKey("settings", FrontSettings)
CATALOG = web.AppKey("catalog", Catalog)
RUNNERS = web.AppKey("runners", Runners)
INFERENCE = web.AppKey("inference", Inference)
