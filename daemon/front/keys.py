"""What the application carries, under typed keys."""

from __future__ import annotations

from aiohttp import web

from pilotfish.daemon.front.catalog import Catalog
from pilotfish.daemon.front.computed_here import EnginesHere
from pilotfish.daemon.front.inference import Inference
from pilotfish.daemon.front.ownership import Ownership
from pilotfish.daemon.front.runners import Runners
from pilotfish.daemon.front.settings import FrontSettings
from pilotfish.daemon.front.upstream_client import UpstreamClient
from pilotfish.manifests.store import Store

SETTINGS = web.AppKey("settings", FrontSettings)
STORE = web.AppKey("store", Store)
CATALOG = web.AppKey("catalog", Catalog)
RUNNERS = web.AppKey("runners", Runners)
ENGINES = web.AppKey("engines", EnginesHere)
INFERENCE = web.AppKey("inference", Inference)
OWNERSHIP = web.AppKey("ownership", Ownership)  # this and the next one only before an upstream
UPSTREAM = web.AppKey("upstream", UpstreamClient)
