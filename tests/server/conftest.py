"""Fixtures of the server's tests: besides servers, the managers alone, on a clock to turn by hand and a real store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from manager_support import Managers

from engine_fixtures import client, clock, server  # noqa: F401
from engine_support import VirtualClock


@pytest.fixture
def managers(tmp_path: Path, clock: VirtualClock) -> Iterator[Managers]:  # noqa: F811
    opened = Managers(tmp_path / "server.db", clock)
    yield opened
    opened.close()
