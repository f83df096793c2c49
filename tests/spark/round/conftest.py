"""Rounds that need no JVM: one server for the tests of a file, and an application with a lake for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from plain_lake import PlainLake
from plain_rounds import Application

from engine_support import ServerThread
from fluss_tiering.client import TieringClient


@pytest.fixture(scope="module")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    folder = tmp_path_factory.mktemp("rounds") / "data"
    with ServerThread(folder, lake_catalog={"type": "hadoop"}) as running:
        yield running


@pytest.fixture
def application(plain_server: ServerThread, tmp_path: Path) -> Iterator[Application]:
    with TieringClient(plain_server.target) as client:
        yield Application(client, plain_server.target, PlainLake(tmp_path / "lake"))
