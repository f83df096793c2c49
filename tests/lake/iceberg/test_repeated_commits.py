"""Commits that land although the answer is a conflict, since the catalog's client has sent the request twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from lake_support import Lake
from older_writer import older_writer
from table_support import commit_of, run_after_staging

from fluss_tiering.lake.iceberg.metadata.rewrite_commit import REWRITE_ID
from fluss_tiering.lake.iceberg.summary import COMMIT_ID
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.spark.maintenance.repair import repair_table
from fluss_tiering.spark.maintenance.rewriting import rewrite_data_files
from needs import needs
from rest_support import RestCatalog
from vending_support import Proxy

KINDS = {"k": "STRING NOT NULL", "v": "INT", "d": "DECIMAL(9, 2)"}
LONG = "y" * 5000
_NUMBERS = itertools.count(1)


class ForgetfulCatalog(Proxy):
    """A REST catalog that commits, and whose proxy says that it is not available. The client asks again then.

    Attributes:
        lost: How many answers are still to be lost.
    """

    lost = 0

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Any:
        answer = super().handle(method, path, headers, body)
        if self.lost and method == "POST" and b'"add-snapshot"' in body:
            assert answer[0] == 200
            self.lost -= 1
            return 503, {"Retry-After": "0"}, b""
        return answer


@dataclass
class RestLake(Lake):
    """A lake table in such a catalog."""

    catalog: Mapping[str, str] = field(default_factory=dict)

    @property
    def table(self) -> TableInfo:
        path = TablePath("db", self.name)
        return replace(super().table, path=path, lake_catalog_properties={**self.catalog, "name": self.name})

    def rows(self) -> list[tuple[str, int]]:
        found = self.spark.sql(f"SELECT k, v FROM {self.name}.db.{self.name}").collect()
        return sorted(map(tuple, found))

    def unneeded_files(self) -> set[str]:
        """Return the names of the data files and manifests in the table's folder that no snapshot refers to."""
        folder, table = Path(urlparse(self.open().location()).path), f"{self.name}.db.{self.name}"
        listings = {"all_files": "file_path", "all_manifests": "path", "snapshots": "manifest_list"}
        needed = {
            row[0].rpartition("/")[2]
            for listing, column in listings.items()
            for row in self.spark.sql(f"SELECT {column} FROM {table}.{listing}").collect()
        }
        return {path.name for kind in ("*.avro", "*.parquet") for path in folder.rglob(kind)} - needed

    @property
    def summary(self) -> Any:
        return self.open().java_table.currentSnapshot().summary()


@pytest.fixture(scope="module")
@needs("system")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    with RestCatalog(tmp_path_factory.mktemp("rest-catalog")) as running:
        yield running


@pytest.fixture
@needs("system")
def catalog(rest: RestCatalog) -> Iterator[ForgetfulCatalog]:
    with ForgetfulCatalog(f"127.0.0.1:{rest.port}") as running:
        yield running


@pytest.fixture
def lake(spark, tmp_path, rest: RestCatalog, catalog: ForgetfulCatalog) -> RestLake:
    properties = {**rest.properties, "uri": catalog.endpoint}
    return RestLake(spark, tmp_path, KINDS, ("k",), name=f"repeated_{next(_NUMBERS)}", catalog=properties)


def rows(keys: str | list[str], value: int) -> list[dict[str, Any]]:
    return [{"k": key, "v": value, "d": value} for key in keys]


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.sampled(1)
def test_a_round(lake: RestLake, catalog: ForgetfulCatalog, pieces: int):
    lake.commit(lake.batch(rows("ab", 1)))
    opened = lake.open()
    written = [lake.write(opened, [lake.batch(rows("b", value))], [lake.batch(rows("b", value))]) for value in (2, 3)]
    commit, catalog.lost = commit_of(4), 1

    landed = opened.commit(written[:pieces], commit)

    assert catalog.lost == 0
    assert lake.rows() == [("a", 1), ("b", 1 + pieces)]
    assert (lake.open().base(), lake.summary.get(COMMIT_ID)) == (landed, commit.commit_id)


def test_a_round_that_lost_to_a_compaction_and_landed_leaves_nothing_behind(lake: RestLake, monkeypatch):
    for value in (1, 2):
        lake.commit(lake.batch(rows("ab"[value - 1], value)))
    opened = lake.open()
    written = lake.write(opened, [lake.batch(rows("c", 3))])
    run_after_staging(monkeypatch, lambda: compacted(lake))

    opened.commit([written], commit_of(3))

    assert lake.rows() == [("a", 1), ("b", 2), ("c", 3)]
    assert lake.unneeded_files() == set()


def compacted(lake: RestLake) -> int:
    done = rewrite_data_files(lake.spark, lake.table, lake.open(), None, options={"rewrite-all": "true"}, of_spark={})
    return done.files


def test_a_compaction(lake: RestLake, catalog: ForgetfulCatalog):
    for value in (1, 2):
        lake.commit(lake.batch(rows("ab"[value - 1], value)))
    catalog.lost = 1

    assert compacted(lake) == 2

    assert catalog.lost == 0
    assert lake.rows() == [("a", 1), ("b", 2)]
    mark = lake.summary.get(REWRITE_ID)
    assert mark is not None
    assert lake.summary.get(COMMIT_ID) is None
    assert lake.unneeded_files() == set()

    lake.commit(lake.batch(rows("c", 3)))
    assert compacted(lake) == 2
    assert lake.summary.get(REWRITE_ID) not in (None, mark), "no rewrite is taken for another one"


@pytest.mark.parametrize("defect", ["types", "bounds"])
@pytest.mark.sampled(1)
def test_a_repair(lake: RestLake, catalog: ForgetfulCatalog, defect: str):
    with older_writer(narrow_bounds=defect == "bounds", decimal_bytes=defect == "types"):
        lake.commit(lake.batch(rows("mn", 1)), lake.batch(rows(["a", LONG], 1)))
        lake.commit(lake.batch(rows("m", 2)), upsert=True)
    catalog.lost = 1

    done = repair_table(lake.spark, lake.table)

    assert catalog.lost == 0
    assert (done.error, done.conflicts) == (None, 0)
    assert bool(done.rewritten_files) == (defect == "types")
    assert bool(done.rebound_files) == (defect == "bounds")
    assert lake.rows() == [("a", 1), ("m", 2), ("n", 1), (LONG, 1)]
    assert lake.summary.get(REWRITE_ID) is not None
