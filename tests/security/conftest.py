"""The fixtures of the tests about security."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine_fixtures import postgres, postgres_url  # noqa: F401
from fluss_tiering.server.edge import watched_files


@pytest.fixture(scope="package", autouse=True)
def looks_often() -> Iterator[None]:
    """Let servers look at the files that say who may call as often as tests change them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(watched_files, "_LOOK_S", 0.05)
        yield
