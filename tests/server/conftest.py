"""Fixtures of the server's tests: besides servers, the managers alone, on a clock to turn by hand and a real store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from manager_support import Managers

from engine_fixtures import client, clock, postgres, postgres_url, server, store_location  # noqa: F401
from engine_support import VirtualClock


@pytest.fixture
def managers(store_location: Path | str, clock: VirtualClock) -> Iterator[Managers]:  # noqa: F811
    """The managers on each kind of database."""
    opened = Managers(store_location, clock)
    yield opened
    opened.close()
