"""A scan during writes, continued with the log, gives each row of the table exactly once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine_support import ServerProcess, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.storage.remote import RemoteSplitReader
from scan_handover import check_handover

ROUNDS = 10
LONG_ROUNDS = 200


@pytest.fixture
def writers_client(server: ServerProcess) -> Iterator[TieringClient]:
    with TieringClient(server.target) as connected:
        yield connected


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(LONG_ROUNDS, marks=pytest.mark.long)])
def test_a_scan_and_the_log_behind_it_are_the_table(  # K5
    client: TieringClient, writers_client: TieringClient, rounds: int
) -> None:
    check_handover(client, writers_client, RemoteSplitReader(client), new_table(client, num_buckets=4), rounds)
