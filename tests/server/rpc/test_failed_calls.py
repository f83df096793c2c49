"""What a real server logs of calls that it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine_support import HOUR, ServerProcess, descriptor, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.audit_log import REFUSED_LINES


@pytest.mark.system
def test_refused_calls_do_not_fill_the_log(tmp_path: Path) -> None:
    # As many calls are refused while the server's database is away, for as long as it is.
    calls = 3 * REFUSED_LINES
    server = ServerProcess(tmp_path).start()
    with TieringClient(server.target) as client:
        for _ in range(calls):
            with pytest.raises(FlussTieringError) as refused:
                client.acquire_lease("", HOUR, {}, allow_empty=True)
            assert refused.value.code is ErrorCode.INVALID_REQUEST
        table = new_table(client)
        with pytest.raises(FlussTieringError, match="exists"):
            client.create_table(table.path, descriptor())
    assert server.stop() == 0
    log = server.log_file.read_text()
    lines = [
        line for line in log.splitlines() if "method=/fluss_tiering.v1.KvSnapshotLeases/AcquireKvSnapshotLease" in line
    ]
    own = [line for line in lines if 'event="call refused"' in line]
    further = [line for line in lines if 'event="further calls refused"' in line]
    assert REFUSED_LINES <= len(own) < calls
    assert all("code=INVALID_REQUEST" in line for line in lines)
    counted = sum(int(re.findall(r"further_refused_calls=(\d+)", line)[0]) for line in further)
    assert len(own) + counted == calls
    assert "method=/fluss_tiering.v1.Tables/CreateTable" in log, "another kind has its own lines"
