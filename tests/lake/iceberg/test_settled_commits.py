"""Commits whose answer is wrong: each command finds out what became of them, and no reader misses a file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final

import pytest
from faulty_catalog import FAULTS, SENT_AGAIN, FaultyCatalog, FaultyLake

from fluss_tiering.lake.iceberg import library
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.java import UNKNOWN_OUTCOME, lake_errors
from fluss_tiering.lake.iceberg.maintenance.position_deletes import rewrite_position_deletes
from fluss_tiering.model.column_changes import AddColumn, RenameColumn
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableInfo
from fluss_tiering.model.table_options import LAKE_COMMIT_BRANCH
from fluss_tiering.spark.maintenance import plan
from fluss_tiering.spark.maintenance.compact import compact_table
from fluss_tiering.spark.maintenance.expire import expire_snapshots
from fluss_tiering.spark.maintenance.maintain import Step, maintain_table
from fluss_tiering.storage.embedded.column_changes import with_changed_columns
from judges import DUCKDB, SPARK
from needs import needs
from rest_support import RestCatalog

_NUMBERS = itertools.count(1)
_KINDS: Final = ("log", "equality", "position", "vector")
_COLUMNS: Final = {"k": "INT NOT NULL", "v": "STRING", "d": "DECIMAL(9, 2)"}


@pytest.fixture(scope="module")
@needs("system")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    with RestCatalog(tmp_path_factory.mktemp("rest-catalog")) as running:
        yield running


@pytest.fixture
@needs("system")
def catalog(rest: RestCatalog) -> Iterator[FaultyCatalog]:
    with FaultyCatalog(f"127.0.0.1:{rest.port}") as running:
        yield running


@pytest.fixture
def new_lake(spark, tmp_path, rest: RestCatalog, catalog: FaultyCatalog) -> Callable[[str], FaultyLake]:
    def made(kind: str) -> FaultyLake:
        key = () if kind == "log" else ("k",)
        properties = {"format-version": "3"} if kind == "vector" else {}
        return FaultyLake(
            spark,
            tmp_path,
            _COLUMNS,
            key,
            properties,
            f"settled_{next(_NUMBERS)}",
            kind=kind,
            catalog={**rest.properties, "uri": catalog.endpoint},
        )

    return made


def client_of(lake: FaultyLake) -> Any:
    """Return a client for a server that knows the newest round."""
    known = SimpleNamespace(snapshot_id=lake.open().newest_commit().snapshot_id)
    return SimpleNamespace(lake_snapshot=lambda path: known, heartbeat=lambda **reports: None)


def a_round(lake: FaultyLake) -> None:
    lake.round()


def a_compaction(lake: FaultyLake) -> str | None:
    return compact_table(lake.spark, lake.table, min_input_files=2).error


def merged_manifests(lake: FaultyLake) -> str | None:
    return maintain_table(client_of(lake), lake.spark, lake.table, steps=[Step.MANIFESTS]).error


def merged_deletes(lake: FaultyLake) -> None:
    with lake_errors("merge deletes"):
        rewrite_position_deletes(lake.spark, lake.open().java_table, [(0,)])


def an_expiry(lake: FaultyLake) -> str | None:
    return expire_snapshots(client_of(lake), lake.spark, lake.table, older_than=timedelta(), retain_last=1).error


COMMANDS: Final = {
    "round": (a_round, _KINDS),
    "compact": (a_compaction, _KINDS),
    "merge manifests": (merged_manifests, _KINDS),
    "merge deletes": (merged_deletes, ("position",)),
    "expire": (an_expiry, _KINDS),
}
"""Each command that commits, the tables that it is for."""
CASES: Final = [(name, kind) for name, (_, kinds) in COMMANDS.items() for kind in kinds]


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.sampled(1)
def test_whatever_the_catalog_answers(new_lake, catalog: FaultyCatalog, monkeypatch, record_property, name, kind, part):
    # E1, E2
    command, _ = COMMANDS[name]
    monkeypatch.setattr(plan, "_MANY_MANIFESTS", 1)
    lake, wrong, checked = None, [], False
    faults = tuple(FAULTS)[part::3]
    tries = [(fault, lands, lands or fault in SENT_AGAIN) for fault in faults for lands in (True, False)]
    # Commits that land come first: they leave nothing behind, which the others would hide.
    for fault, lands, done in sorted(tries, key=lambda each: not each[2]):
        if lake is None:
            lake = new_lake(kind)
            lake.round()
        elif not done and not checked:
            checked = True
            wrong += [f"leaves {each}" for each in lake.unneeded_files()]
        if name != "round":
            lake.round()
        catalog.fault, catalog.lands = FAULTS[fault], lands
        failure = outcome(command, lake)
        assert catalog.fault is None, "no commit was sent"
        lake.model = lake.pending if done else lake.model
        seen = [*answered(failure, done=done), *judged(lake)]
        # The request may only be late.
        if [each()[0] for each in catalog.late] == [200] and not seen:
            # Nothing is left of an expiry to be done twice.
            assert name == "expire" or not done, "a commit that was sent again has landed twice"
            lake.model = lake.pending
            seen += judged(lake)
        catalog.late.clear()
        lake.pending = lake.model
        seen = [f"{fault} {'after' if lands else 'before'}: {each}" for each in seen]
        wrong += seen
        lake = None if seen else lake
        record_property(f"{name}, {kind}, {fault} {'after' if lands else 'before'}", seen or failure or "done")
    assert not wrong, "\n".join(wrong)


def outcome(command: Callable[[FaultyLake], str | None], lake: FaultyLake) -> str | None:
    try:
        return command(lake)
    except FlussTieringError as error:
        return error.message


def answered(failure: str | None, *, done: bool) -> Iterator[str]:
    """Yield what is wrong with the answer of a command."""
    if done and failure is not None:
        yield f"says {failure}"
    if not done and UNKNOWN_OUTCOME not in (failure or ""):
        yield f"does not say that the outcome is unknown: {failure}"


def judged(lake: FaultyLake) -> Iterator[str]:
    """Yield where a reader finds other rows than the model, or none."""
    for judge in (SPARK, DUCKDB):
        try:
            found = lake.keys(judge)
        except Exception as error:  # noqa: BLE001 - whatever a reader says
            yield f"{judge} cannot read it: {str(error)[:300]}"
        else:
            if found != lake.model:
                yield f"{judge} finds {found} instead of {lake.model}"


def a_publication(lake: FaultyLake) -> None:
    with lake_errors("publish"):
        assert (
            library.ask(lake.open().java_table, "publish", {"snapshot": None, "tag": None, "keys": ()})["refused"]
            is None
        )


def on_a_branch(table: TableInfo) -> TableInfo:
    properties = {**table.descriptor.properties, LAKE_COMMIT_BRANCH.key: "audit"}
    return replace(table, descriptor=replace(table.descriptor, properties=properties))


def test_a_publication_whose_answer_is_wrong_is_done_or_told(new_lake, catalog: FaultyCatalog, monkeypatch):
    of_main = FaultyLake.table.fget
    monkeypatch.setattr(FaultyLake, "table", property(lambda self: on_a_branch(of_main(self))))
    lake = new_lake("log")
    seen: list[int] = []
    for fault, lands in itertools.product(FAULTS, (True, False)):
        lake.round()
        assert lake.keys(DUCKDB) == seen, "main moved by a round"
        catalog.fault, catalog.lands = FAULTS[fault], lands
        failure = outcome(a_publication, lake)
        seen = lake.keys(DUCKDB)
        assert (seen == lake.model) or (failure is not None and not lands), (fault, lands, failure)
        # The request may only be late. To publish again is right in any case.
        for late in catalog.late:
            late()
        catalog.late.clear()
        a_publication(lake)
        seen = lake.keys(DUCKDB)
        assert seen == lake.model, (fault, lands)


def a_write_to_a_branch(lake: FaultyLake) -> None:
    table = lake.open().java_table
    table.manageSnapshots().createBranch("audit", table.currentSnapshot().snapshotId()).commit()
    table.newAppend().toBranch("audit").commit()


def a_row_of_others(lake: FaultyLake) -> None:
    values = "0, 'theirs', 1, 0, 0, TIMESTAMP '2020-01-01 00:00:00'"
    lake.spark.sql(f"INSERT INTO {lake.name}.db.{lake.name} VALUES ({values})")


# E4: the sequence number is taken by others, and the catalog calls that a bad request
@pytest.mark.parametrize("others", [a_compaction, a_write_to_a_branch, a_row_of_others])
def test_a_conflict_that_is_called_a_bad_request(new_lake, catalog: FaultyCatalog, others):
    lake = new_lake("equality")
    for _ in range(3):
        lake.round()
    catalog.fault, catalog.meanwhile = FAULTS["400 conflict"], lambda: others(lake)
    if others is a_row_of_others:
        with pytest.raises(FlussTieringError) as refused:
            lake.round()
        assert refused.value.code is ErrorCode.LAKE_CONFLICT
        lake.model = [0, *lake.model]
    else:
        lake.round()
    assert [each()[0] == 200 for each in catalog.late] == [False], "the request itself can never land"
    assert lake.keys(DUCKDB) == lake.model
    assert lake.unneeded_files() == set()


# E1: others build on a commit whose answer is lost, and expire its snapshot before its outcome is looked up
@pytest.mark.parametrize("command", [a_round, a_compaction, merged_manifests])
def test_a_commit_that_others_have_built_on_and_expired_has_landed(
    new_lake, catalog: FaultyCatalog, monkeypatch, command
):
    monkeypatch.setattr(plan, "_MANY_MANIFESTS", 1)
    lake = new_lake("log")
    for _ in range(3):
        lake.round()

    def others() -> None:
        ours = lake.open().java_table.currentSnapshot().snapshotId()
        a_row_of_others(lake)
        lake.open().java_table.expireSnapshots().expireSnapshotId(ours).commit()

    catalog.fault, catalog.lands, catalog.meanwhile = FAULTS["504"], True, others
    failure = outcome(command, lake)
    assert failure is None
    lake.model = [0, *lake.pending]
    assert lake.keys(SPARK) == lake.keys(DUCKDB) == lake.model


# E1: a rollback leaves the sequence number as it was, so that a copy that is behind looks as new as the table
def test_a_copy_from_before_a_rollback_proves_nothing(new_lake, catalog: FaultyCatalog):
    lake = new_lake("log")
    for _ in range(2):
        lake.round()
    table = lake.open().java_table
    parent = table.currentSnapshot().parentId()
    catalog.keep()
    table.manageSnapshots().rollbackTo(parent).commit()
    lake.model = lake.pending = lake.model[: len(lake.model) // 2]
    catalog.fault, catalog.lands, catalog.stale = FAULTS["401"], True, True
    assert UNKNOWN_OUTCOME in (outcome(a_round, lake) or "")
    catalog.stale = False
    assert lake.keys(SPARK) == lake.keys(DUCKDB) == lake.pending


# E1: a snapshot without a parent is checked for nothing but that there is none
def test_a_late_first_commit_may_land_once_the_table_is_emptied(new_lake, catalog: FaultyCatalog):
    lake = new_lake("log")
    lake.open()
    catalog.fault, catalog.lands, catalog.meanwhile = FAULTS["504"], False, lambda: a_row_of_others(lake)
    assert UNKNOWN_OUTCOME in (outcome(a_round, lake) or "")
    name = f"{lake.name}.db.{lake.name}"
    columns = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in lake.spark.table(name).schema)
    lake.spark.sql(f"CREATE OR REPLACE TABLE {name} ({columns}) USING iceberg")
    assert [each()[0] for each in catalog.late] == [200]
    assert lake.keys(SPARK) == lake.keys(DUCKDB) == lake.pending


def test_a_commit_is_unknown_while_its_history_cannot_be_read(new_lake, catalog: FaultyCatalog):  # E1
    lake = new_lake("log")
    lake.round()
    lake.round()
    catalog.fault, catalog.lands, catalog.unreachable = FAULTS["401"], True, True
    failure = a_compaction(lake)
    catalog.unreachable = False
    assert failure.endswith(UNKNOWN_OUTCOME)
    assert failure.startswith("the lake refused the credentials given: NotAuthorizedException: ")
    assert lake.keys(DUCKDB) == lake.keys(SPARK) == lake.model
    lake.round()


def test_a_copy_of_the_catalog_that_is_behind_proves_nothing(new_lake, catalog: FaultyCatalog):  # E1
    lake = new_lake("log")
    lake.round()
    catalog.keep()
    lake.round()
    catalog.fault, catalog.lands, catalog.stale = FAULTS["401"], True, True
    failure = outcome(a_round, lake)
    catalog.stale = False
    assert failure.endswith(UNKNOWN_OUTCOME)
    lake.model = lake.pending
    assert list(judged(lake)) == []


def test_without_the_jar_no_lake_table_is_opened(new_lake, monkeypatch):  # E1
    lake = new_lake("log")
    lake.round()
    monkeypatch.setattr(library, "_loaded", library._loaded.__wrapped__)
    monkeypatch.setattr(library, "_JAR", "spark/jars/missing.jar")
    monkeypatch.setattr(library, "_CLASS", "fluss.tiering.iceberg.Missing")
    with pytest.raises(FlussTieringError, match=r"expected the class .*Missing in .*missing\.jar; run `make setup`"):
        lake.open()


def test_columns_are_changed_once_whatever_the_catalog_answers(
    spark, new_lake, catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = new_lake("log")
    lake.round()
    table = lake.table
    monkeypatch.setattr(FaultyLake, "table", property(lambda self: table))
    for number, (fault, lands) in enumerate(itertools.product(FAULTS, (True, False)), 1):
        added = AddColumn(Column(f"c{number}", DataType.parse("INT"), "a comment"))
        renamed = RenameColumn("v" if number == 1 else f"v{number - 1}", f"v{number}")
        table = with_changed_columns(table, [added, renamed])
        catalog.fault, catalog.lands = FAULTS[fault], lands
        found = IcebergCatalogs(spark).find_table(table, follow=True)
        assert catalog.fault is None, "no commit was sent"
        assert found is not None
        # A request that is late comes to nothing, since the lake table follows already.
        assert [each()[0] for each in catalog.late] != [200], (fault, lands)
        catalog.late.clear()
        again = IcebergCatalogs(spark).find_table(table, follow=True)
        for opened in (found, again):
            fields = {field["name"]: field for field in opened._schema["fields"]}
            places = ["__bucket", "__offset", "__timestamp"]
            assert list(fields) == [*(column.name for column in table.descriptor.columns), *places], (fault, lands)
            assert fields[f"v{number}"]["id"] == 2
            assert fields[f"c{number}"]["doc"] == "a comment"
    assert lake.keys(SPARK) == lake.keys(DUCKDB) == lake.model
