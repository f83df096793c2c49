"""Compares a table and its lake table with the model, by every judge that can read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlparse

import pyarrow as pa

from fluss_tiering.formats.schema import arrow_schema
from torture.judging.checks import Readable, WrongError, check_lake, check_scan
from torture.judging.doubts import settle
from torture.judging.fluss_reader import check_with_fluss
from torture.steps.running import Running

_SUMMARY_BYTES: Final = 9_500
"""What a snapshot may say of itself, however many buckets the table has."""


def check(run: Running, name: str, *, seed: int, light: bool = False) -> None:
    """Compare a table with the model.

    Args:
        run: The plan that runs.
        name: The name of the table.
        seed: What the questions to the judges come from, and which of the slow judges read.
        light: Whether only one judge reads, and only the first column.

    Raises:
        WrongError: something was not as it must be.
    """
    info, planned, model = run.infos[name], run.planned(name), run.models[name]
    try:
        metadata = run.world.metadata(info)
    except KeyError:
        if model.lake_rows():
            raise WrongError("there is no lake table", run.path(name)) from None
        return
    table = json.loads(Path(urlparse(metadata).path).read_text())
    newest = _newest_snapshot(run, table)
    if newest is not None:
        run.lake_exists.add(name)
    lake = _readable(run, name, metadata, table)
    if model.has_doubts:
        run.tally.counts["rows that were in doubt and are there"] += settle(lake, model)
    most = 0 if light else run.most
    check_lake(lake, model, run.tally, seed, spark=not light and seed % 3 == 0, most=most)
    if run.world.fluss_reader is not None and newest is not None and not light:
        if name in run.rearranged:
            run.tally.left_out["Fluss's reader takes columns by the positions and types of the Fluss table"] += 1
        else:
            check_with_fluss(run.world.fluss_reader, info.path, newest, lake, model, run.tally)
    if planned.primary_key and seed % 2 == 0 and not light:
        with run.world.client.scan(info) as scan:
            batches = list(scan)
        check_scan(planned.typed, pa.Table.from_batches(batches, arrow_schema(planned.typed)), model, run.tally)
    run.tally.counts["checks"] += 1


def _readable(run: Running, name: str, metadata: str, table: Mapping[str, Any]) -> Readable:
    path = run.path(name)
    out = run.world.folder / "read.arrow"

    def spark_read(columns: Any) -> pa.Table:
        run.world.call("read", table=path, columns=list(columns), out=str(out))
        with pa.OSFile(str(out)) as file:
            return pa.ipc.open_file(file).read_all()

    def spark_count(predicates: Any) -> list[int]:
        return list(run.world.call("count", table=path, predicates=list(predicates)))

    return Readable(
        run.planned(name).typed,
        metadata,
        _may_have(table, "equality-deletes"),
        run.lake_keys(name),
        run.world.judges,
        spark_read,
        spark_count,
        run.world.lake.throttling is not None,
        table["format-version"] > 2 and _may_have(table, "position-deletes"),
    )


def _newest_snapshot(run: Running, table: Mapping[str, Any]) -> int | None:
    """Return the id of the newest snapshot, if there is one, after a look at the size of what it says of itself."""
    newest = _newest(table)
    size = 0 if newest is None else sum(len(key) + len(value) for key, value in newest["summary"].items())
    counts = run.tally.counts
    counts["largest summary in bytes"] = max(size, counts["largest summary in bytes"])
    if size > _SUMMARY_BYTES:
        raise WrongError("a snapshot's summary is large", f"{size:,} bytes, at most {_SUMMARY_BYTES:,}")
    return None if newest is None else int(newest["snapshot-id"])


def _newest(table: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((each for each in table["snapshots"] if each["snapshot-id"] == table["current-snapshot-id"]), None)


def _may_have(table: Mapping[str, Any], deletes: str) -> bool:
    newest = _newest(table)
    return newest is not None and newest["summary"].get(f"total-{deletes}") != "0"
