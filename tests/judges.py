"""Readers of Iceberg tables that are not ours: DuckDB, ClickHouse, Spark and pyiceberg.

Each reads the table as one metadata file describes it, and can look for rows with a predicate. A reader skips files,
row groups and pages by their bounds if the predicate is pushed down. The same question without push-down must have the
same answer, unless a bound is wrong.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, reduce
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

DUCKDB: Final = "duckdb"
CLICKHOUSE: Final = "clickhouse"
SPARK: Final = "spark"
PYICEBERG: Final = "pyiceberg"
WITHOUT_JVM: Final = (DUCKDB, CLICKHOUSE)
"""The readers that know equality deletes and need no JVM."""


_CLICKHOUSE_PUSH_DOWN: Final = (
    "use_iceberg_partition_pruning",
    "input_format_parquet_filter_push_down",
    "input_format_parquet_page_filter_push_down",
    "input_format_parquet_bloom_filter_push_down",
    "optimize_move_to_prewhere",
)
_CLICKHOUSE_SETTINGS: Final = {
    "max_threads": 1,
    # BYTES need not be text.
    "output_format_arrow_string_as_string": 0,
    # Caches remember answers about files whose names a later test may use again.
    "use_query_condition_cache": 0,
    "use_iceberg_metadata_files_cache": 0,
    # A field of a ROW that is not selected cannot be compared otherwise.
    "optimize_functions_to_subcolumns": 0,
}


@dataclass(frozen=True)
class Micros:
    """A timestamp in microseconds since the epoch, for times that Python has no value for."""

    count: int
    zoned: bool = False


@dataclass(frozen=True)
class Days:
    """A date in days since the epoch, for dates that Python has no value for."""

    count: int


@dataclass(frozen=True)
class Predicate:
    """A comparison of one column with one value.

    Attributes:
        column: The name of the column, or the path to a field of a ROW.
        operator: One of = <> < <= > >=, or IS NULL and IS NOT NULL, which have no value.
        value: A Python value, `Micros` or `Days`.
    """

    column: str | tuple[str, ...]
    operator: str = "="
    value: Any = None

    @property
    def path(self) -> tuple[str, ...]:
        return (self.column,) if isinstance(self.column, str) else self.column


def read(
    judge: str,
    metadata: str | Path,
    where: Predicate | Sequence[Predicate] = (),
    *,
    columns: Sequence[str] | None = None,
    push_down: bool = True,
    spark: Any = None,
) -> pa.Table:
    """Return the rows of a table for which all predicates hold, in no order.

    ClickHouse gives text as bytes, a null ROW as a ROW of nulls, a TIME in microseconds, and only has timestamps of the
    years 1900 to 2299. Spark refuses tables with a TIME column.

    Args:
        judge: `DUCKDB`, `CLICKHOUSE`, `SPARK` or `PYICEBERG`, which refuses tables with equality deletes.
        metadata: The table's metadata file, as a path or a `file:` location.
        where: The predicates.
        columns: The columns; None for all.
        push_down: Whether the reader may skip files by the predicates.
        spark: The session of the judge `SPARK`.
    """
    path = _local(metadata)
    predicates = (where,) if isinstance(where, Predicate) else tuple(where)
    if judge == DUCKDB:
        return _duckdb_rows(path, predicates, columns, push_down)
    if judge == CLICKHOUSE:
        return _clickhouse_rows(path, predicates, columns, push_down)
    if judge == SPARK:
        return _spark_rows(spark, path, predicates, columns, push_down)
    if judge == PYICEBERG:
        return _pyiceberg_rows(path, predicates, columns)
    raise ValueError(judge)


def sorted_by_clickhouse(metadata: str | Path, column: str, *, descending: bool = False) -> list[Any]:
    """Return the values of a column in the order in which ClickHouse sorts the rows by it."""
    path = _local(metadata)
    name = _click_quoted(column)
    with contextlib.chdir("/"):
        answer = _clickhouse().query(
            f"SELECT {name} FROM {_clickhouse_source(path)} ORDER BY {name}{' DESC' if descending else ''}",
            "ArrowStream",
        )
    return pa.ipc.open_stream(answer.bytes()).read_all().column(0).to_pylist()


def newest_metadata(table_location: str | Path) -> str:
    """Return the newest metadata file of a table's folder, by its number."""
    folder = Path(_local(table_location)) / "metadata"
    return str(
        max(folder.glob("*.metadata.json"), key=lambda each: int(each.name.split(".")[0].lstrip("v").split("-")[0]))
    )


def _local(location: str | Path) -> str:
    text = str(location)
    return "/" + text.removeprefix("file:").lstrip("/") if text.startswith("file:") else text


def _duckdb_rows(path: str, where: Sequence[Predicate], columns: Sequence[str] | None, push_down: bool) -> pa.Table:
    names = ", ".join(map(_double_quoted, columns)) if columns else "*"
    source = f"iceberg_scan({_sql_text(path)})"
    if json.loads(Path(path).read_text())["location"].startswith("s3:"):
        # The files of a lake on S3 are read where the S3 server keeps them.
        folder, version = str(Path(path).parent.parent), Path(path).name.removesuffix(".metadata.json")
        source = f"iceberg_scan({_sql_text(folder)}, allow_moved_paths = true, version = {_sql_text(version)})"
    with _duckdb().cursor() as connection:
        if not push_down:
            connection.execute(f"CREATE OR REPLACE TEMP TABLE everything AS SELECT * FROM {source}")
            source = "everything"
        return connection.execute(
            f"SELECT {names} FROM {source}{_where(where, _duckdb_term, _duckdb_literal)}"
        ).to_arrow_table()


@cache
def _duckdb() -> Any:
    import duckdb  # noqa: PLC0415

    # The extensions are wheels, which DuckDB would otherwise download.
    connection = duckdb.connect(
        config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "threads": "1"}
    )
    for name in ("avro", "iceberg"):
        spec = importlib.util.find_spec(f"duckdb_extension_{name}")
        (folder,) = spec.submodule_search_locations
        (file,) = Path(folder).glob("extensions/*/*.duckdb_extension")
        connection.execute(f"LOAD {_sql_text(str(file))}")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _clickhouse_rows(path: str, where: Sequence[Predicate], columns: Sequence[str] | None, push_down: bool) -> pa.Table:
    names = ", ".join(map(_click_quoted, columns)) if columns else "*"
    folder = Path(path).parent.parent
    source = f"icebergLocal({_click_text(f'{folder}/')}, SETTINGS iceberg_metadata_file_path = {_click_text(path)})"
    settings = {**dict.fromkeys(_CLICKHOUSE_PUSH_DOWN, int(push_down)), **_CLICKHOUSE_SETTINGS}
    query = (
        f"SELECT {names} FROM {source}{_where(where, _click_term, _click_literal)} "
        f"SETTINGS {', '.join(f'{name} = {value}' for name, value in settings.items())}"
    )
    try:
        # ClickHouse only reads files below the working folder.
        with contextlib.chdir("/"):
            answer = _clickhouse().query(query, "ArrowStream")
    except BaseException:
        # The next answer of a connection that has failed may be wrong.
        _clickhouse().close()
        _clickhouse.cache_clear()
        raise
    return pa.ipc.open_stream(answer.bytes()).read_all()


def _clickhouse_source(path: str) -> str:
    folder = Path(path).parent.parent
    return f"icebergLocal({_click_text(f'{folder}/')}, SETTINGS iceberg_metadata_file_path = {_click_text(path)})"


@cache
def _clickhouse() -> Any:
    import chdb  # noqa: PLC0415

    return chdb.connect()


def _spark_rows(
    spark: Any, path: str, where: Sequence[Predicate], columns: Sequence[str] | None, push_down: bool
) -> pa.Table:
    from pyspark.sql import functions as sf  # noqa: PLC0415

    rows = spark.read.format("iceberg").load(f"file:{path}")
    wanted = [_back_quoted(name) for name in columns or rows.columns]
    if not push_down:
        # Spark pushes no filter below an expression that is not deterministic.
        rows = rows.select("*", sf.monotonically_increasing_id().alias("__row")).where("__row >= 0")
    for each in where:
        rows = rows.where(_where([each], _spark_term, _spark_literal).removeprefix(" WHERE "))
    return rows.select(*wanted).toArrow()


def _pyiceberg_rows(path: str, where: Sequence[Predicate], columns: Sequence[str] | None) -> pa.Table:
    from pyiceberg import expressions as ex  # noqa: PLC0415
    from pyiceberg.table import StaticTable  # noqa: PLC0415

    kinds: Mapping[str, Any] = {
        "=": ex.EqualTo,
        "<>": ex.NotEqualTo,
        "<": ex.LessThan,
        "<=": ex.LessThanOrEqual,
        ">": ex.GreaterThan,
        ">=": ex.GreaterThanOrEqual,
        "IS NULL": ex.IsNull,
        "IS NOT NULL": ex.NotNull,
    }
    expression: Any = ex.AlwaysTrue()
    for each in where:
        arguments = () if each.operator.startswith("IS") else (each.value,)
        expression = ex.And(expression, kinds[each.operator](".".join(each.path), *arguments))
    return StaticTable.from_metadata(path).scan(expression, tuple(columns or ("*",))).to_arrow()


def _where(
    predicates: Sequence[Predicate], term: Callable[[tuple[str, ...]], str], literal: Callable[[Any], str]
) -> str:
    texts = [
        f"{term(each.path)} {each.operator}{'' if each.operator.startswith('IS') else ' ' + literal(each.value)}"
        for each in predicates
    ]
    return f" WHERE {' AND '.join(texts)}" if texts else ""


def _double_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _back_quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _click_quoted(name: str) -> str:
    """Quote a name for ClickHouse, where a backslash escapes in names, too."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _sql_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _click_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _duckdb_term(path: tuple[str, ...]) -> str:
    return ".".join(map(_double_quoted, path))


def _click_term(path: tuple[str, ...]) -> str:
    column, *fields = path
    return reduce(lambda term, field: f"tupleElement({term}, {_click_text(field)})", fields, _click_quoted(column))


def _spark_term(path: tuple[str, ...]) -> str:
    return ".".join(map(_back_quoted, path))


def _duckdb_literal(value: Any) -> str:
    match value:
        case bool() | int():
            return str(value)
        case float():
            return f"'{value!r}'::DOUBLE"
        case Decimal():
            # DuckDB takes a number of more than 38 digits for a DOUBLE, and counts a zero before the point.
            return f"'{value:f}'::DECIMAL(38, {max(0, -int(value.as_tuple().exponent))})"
        case str():
            # DuckDB's SQL ends with a NUL.
            stand_in = next(mark for mark in map(chr, range(0xE100, 0xF000)) if mark not in value)
            text = _sql_text(value.replace("\0", stand_in))
            return text if "\0" not in value else f"replace({text}, '{stand_in}', chr(0))"
        case bytes():
            return "unhex('" + value.hex() + "')"
        case dt.datetime():
            return f"'{value.isoformat(' ')}'::{'TIMESTAMPTZ' if value.tzinfo else 'TIMESTAMP'}"
        case dt.date():
            return f"'{value.isoformat()}'::DATE"
        case dt.time():
            return f"'{value.isoformat()}'::TIME"
        case Micros():
            return f"make_timestamptz({value.count})" if value.zoned else f"make_timestamp({value.count})"
        case Days():
            return f"make_date({value.count})"
    raise TypeError(value)


def _click_literal(value: Any) -> str:
    match value:
        case bool() | int():
            return str(value)
        case float():
            return f"toFloat64('{value!r}')"
        case Decimal():
            return f"toDecimal128('{value:f}', {max(0, -int(value.as_tuple().exponent))})"
        case str():
            return _click_text(value)
        case bytes():
            return f"unhex('{value.hex()}')"
        case dt.datetime():
            return f"toDateTime64('{value.replace(tzinfo=None).isoformat(' ')}', 6, 'UTC')"
        case dt.date():
            return f"toDate32('{value.isoformat()}')"
        case Micros():
            return f"fromUnixTimestamp64Micro({value.count}, 'UTC')"
        case Days():
            return f"toDate32({value.count})"
    raise TypeError(value)


def _spark_literal(value: Any) -> str:
    match value:
        case bool() | int():
            return str(value)
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case Decimal():
            return f"{value:f}BD"
        case str():
            return _click_text(value)
        case bytes():
            return f"X'{value.hex()}'"
        case dt.datetime():
            return f"{'TIMESTAMP_LTZ' if value.tzinfo else 'TIMESTAMP_NTZ'} '{value.isoformat(' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case Micros():
            zoned = f"timestamp_micros({value.count})"
            return zoned if value.zoned else f"CAST({zoned} AS TIMESTAMP_NTZ)"
        case Days():
            return f"date_from_unix_date({value.count})"
    raise TypeError(value)
