"""A draft host whose drafter repeats the last token."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pilotfish.lab.fakes import ScriptedDrafter
from tests.daemon.drafthost.clients import ANYWHERE, Client, repeating
from tests.fakes.far import serving


@pytest.fixture
def host() -> Iterator[tuple[Client, ScriptedDrafter]]:
    drafter = repeating()
    with serving(drafter, ANYWHERE, sweep=0.02) as (url, _):
        client = Client(url)
        yield client, drafter
        client.http.close()
