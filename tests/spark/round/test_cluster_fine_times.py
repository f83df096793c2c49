"""Times and timestamps with nanoseconds, which Fluss's own Python client writes into logs as they are."""

from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from source_support import columns
from spark_support import Tiering

import judges
from engine_support import new_path
from fluss_support import FlussCluster
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import TableDescriptor

PYFLUSS = Path(__file__).parents[2] / "storage" / "support" / "pyfluss_writes.py"
NANOS = (0, 999, 1_001_999, 86_399_999_999_999)


@pytest.mark.slow
@pytest.mark.system
def test_times_of_nanoseconds_are_rounded_down_as_timestamps_are(cluster: Tiering, fluss_cluster: FlussCluster) -> None:
    """Fluss itself keeps milliseconds of a TIME, but its Python client appends what an Arrow batch has."""
    path = new_path()
    made = columns(id="INT", t7="TIME(7)", t9="TIME(9)", ts="TIMESTAMP(9)")
    options = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
    table = cluster.client.create_table(path, TableDescriptor(made, num_buckets=1, properties=options))
    schema = arrow_schema(made)
    counts = pa.array(NANOS, pa.int64())
    batch = pa.record_batch(
        [pa.array(range(len(NANOS)), pa.int32()), *(counts.cast(schema.field(name).type) for name in schema.names[1:])],
        schema=schema,
    )
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, schema) as writer:
        writer.write_batch(batch)
    written = subprocess.run(
        [sys.executable, PYFLUSS, fluss_cluster.bootstrap],
        check=False,
        input=pickle.dumps([(str(path), stream.getvalue().to_pybytes())]),
        capture_output=True,
        timeout=120,
    )
    assert written.stdout.decode().split() == [str(path)], written.stderr.decode()

    cluster.tier(table, claim_timeout_s=60)

    warehouse = urlparse(table.lake_catalog_properties["warehouse"]).path
    location = f"file:{warehouse}/{path.database}/{path.table}"
    rows = judges.read("duckdb", judges.newest_metadata(location)).sort_by("id").to_pylist()
    micros = [nanos // 1000 for nanos in NANOS]
    midnight = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a TIMESTAMP has no zone
    stamps = [midnight + dt.timedelta(microseconds=each) for each in micros]
    assert [row["ts"] for row in rows] == stamps
    for name in ("t7", "t9"):
        assert [row[name] for row in rows] == [each.time() for each in stamps]
