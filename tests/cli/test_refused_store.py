"""A lake catalog that demands what executors cannot do."""

from __future__ import annotations

import json

import pytest

from engine_support import descriptor, new_path
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark import application

WAREHOUSE = "table.datalake.iceberg.warehouse"


# E21, E26
def test_a_table_whose_store_executors_cannot_use_fails_before_spark_starts(command, client, monkeypatch):
    monkeypatch.setattr(application, "own_session", lambda *_: pytest.fail("Spark would start"))
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    said = {}
    for options, error in (
        ({WAREHOUSE: "hdfs://node/lake"}, "expected ARROW_LIBHDFS_DIR"),
        (
            {WAREHOUSE: "gs://bucket/lake", "table.datalake.iceberg.gcs.user-project": "p"},
            "the lake catalog has gcs.user-project=p, and executors cannot name a project that pays",
        ),
    ):
        table = client.create_table(new_path(), descriptor(properties=options))
        said[str(table.path)] = error
    found = command("tier", *said, "--json")
    assert found.code == 1
    for path, each in zip(said, json.loads(found.out), strict=True):
        assert said[path] in each["error"]
    for path, error in said.items():
        (status,) = client.list_tiering_statuses(TablePath.parse(path))
        assert error in status.last_error
        assert status.state is TieringState.FAILED
        assert status.consecutive_failures == 1
