"""A round calls a server that is away again, until it is told to stop. `test_keepalive_times` has what it hears."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine_support import ServerThread
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.retry import RetryingClient


# Fluss #3681
@pytest.mark.slow
def test_a_round_calls_an_unavailable_server_again_until_it_is_told_to_stop(tmp_path: Path, monkeypatch):
    call, left = TieringClient._call, [3]
    stopped = threading.Event()

    def flaky(self, *arguments):
        left[0] -= 1
        if left[0] >= 0:
            raise FlussTieringError(ErrorCode.UNAVAILABLE, "away")
        return call(self, *arguments)

    monkeypatch.setattr(TieringClient, "_call", flaky)
    with ServerThread(tmp_path / "data") as server, RetryingClient(server.target, stopped=stopped) as client:
        assert client.describe_storage()
        assert left == [-1]

        left[0] = 100
        stopped.set()
        with pytest.raises(FlussTieringError, match="away"):
            client.describe_storage()
        assert left == [99]
