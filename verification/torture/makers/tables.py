"""Tables that a seed makes up: every type, nested to depth 3, nullable in every place, with names of every kind."""

from __future__ import annotations

import random
import re
from typing import Final

from fluss_tiering.model.data_type import NESTED, DataType
from fluss_tiering.model.partition_by import PartitionTransform
from fluss_tiering.model.table_options import LAKE_LAYOUT, LAKE_PARTITION_BY
from torture.driver.row_groups import ROW_GROUP_ROWS
from torture.plan import PlannedTable

_SCALARS: Final = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(5, 2)", "DECIMAL(9, 0)",
    "DECIMAL(18, 18)", "DECIMAL(19, 3)", "DECIMAL(38, 10)", "DECIMAL(38, 38)", "DECIMAL(1, 0)", "CHAR(1)",
    "CHAR(20)", "STRING", "STRING", "STRING", "BINARY(1)", "BINARY(16)", "BINARY(17)", "BYTES", "BYTES", "DATE",
    "DATE", "TIMESTAMP(0)", "TIMESTAMP(1)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(0)",
    "TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(6)", "TIMESTAMP_LTZ(9)", "TIME(0)", "TIME(3)",
)  # fmt: skip
_KEYS: Final = (
    "INT", "BIGINT", "STRING", "STRING", "STRING", "DATE", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)", "DECIMAL(12, 2)",
    "BYTES", "BINARY(4)", "SMALLINT", "TINYINT", "BOOLEAN", "CHAR(8)", "TIME(3)",
)  # fmt: skip
_BUCKETABLE: Final = ("INT", "BIGINT", "STRING", "BYTES", "DATE", "DECIMAL(12, 2)", "TIMESTAMP(6)", "BINARY(4)")
_NAMES: Final = (
    "plain", "a b", " lead", "a.b", "a.b.c", ".", "select", "from", "order", "null", "true", "1", "1a", "naïve",
    "日本", "😀", "a`b", 'a"b', "a'b", "a-b", "a/b", "a=b", "a%20b", "a+b", "a#b", "a\\b", "{x}", "[0]", "?", "*",
    "key", "value", "element", "list", "pos", "file_path", "ı", "ß", "e\u0301", "x" * 200, "_c", "timestamp",
    "bucket", "offset", "partition", "a:b", "a,b", "a;b", "(a)", "\u200b", "$", "@", "a\u2028b",
)  # fmt: skip
_METRICS: Final = (
    "nonsense",
    "truncate(abc)",
    "truncate(0)",
    "truncate(-1)",
    "none",
    "counts",
    "full",
    "truncate(2)",
    "",
)
_TRANSFORMS: Final = (
    ("identity", None),
    ("bucket", 3),
    ("truncate", 2),
)
"""None of time: DuckDB and ClickHouse then miss rows from before 1970, whoever has written them."""
_FRESH: Final = "1s"
_ENABLED: Final = "table.datalake.enabled"
DELETE_FILES: Final = "table.datalake.delete-files"
_PARTITIONS: Final = (
    ("p0", "p1", "p2", "p3"),
    ("2024", "0", "00", "20240101"),
    ("2024-01-01", "2024-02-29", "1970-01-01", "2024-12-31-23"),
    ("null", "NULL", "true", "nan"),
    ("a", "A", "_a", "a-b"),
)
"""Values that readers may take for something else, since they stand in the paths of files."""


def make_table(chance: random.Random, name: str, *, storage: str = "embedded") -> PlannedTable:
    """Return a table. Which values and rows it gets is up to its history."""
    keyed = chance.random() < 0.55
    names = _Names(chance)
    columns: list[list[str]] = []
    primary_key: list[str] = []
    bucket_key = None
    if keyed:
        kinds = [chance.choice(_KEYS) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
        if not set(kinds) & set(_BUCKETABLE):
            kinds[0] = chance.choice(_BUCKETABLE)
        for kind in kinds:
            columns.append([names.new(), f"{kind} NOT NULL"])
        primary_key = [each[0] for each in columns]
        bucket_key = chance.choice([each[0] for each, kind in zip(columns, kinds, strict=True) if kind in _BUCKETABLE])
    elif chance.random() < 0.4:
        columns.append([names.new(), f"{chance.choice(_BUCKETABLE)} NOT NULL"])
        bucket_key = columns[0][0]
    width = chance.choice((0, 1, 2, 3, 5, 8, 13, 30)) if chance.random() < 0.95 else chance.choice((120, 600))
    for _ in range(max(width, 0 if columns else 1)):
        columns.append([names.new(), _type(chance, 3 if width < 100 else 0)])
    partition_keys = []
    if chance.random() < 0.25:
        for _ in range(chance.choice((1, 1, 2))):
            columns.insert(chance.randint(0, len(columns)), [names.new(), "STRING NOT NULL"])
        partition_keys = [each[0] for each in columns if each[1] == "STRING NOT NULL" and each[0] not in primary_key]
        partition_keys = [each for each in partition_keys if each != bucket_key][-2:]
        primary_key = [*primary_key, *partition_keys] if keyed else []
    of_lake = _of_lake(columns, partition_keys, keyed=bool(primary_key))
    if keyed and storage == "embedded" and of_lake.get(LAKE_LAYOUT.key) != "legacy":
        # Without one, all columns of the key decide the bucket. It takes no chance of the plan's, either.
        bucket_key = random.Random(f"buckets/{columns}").choice((bucket_key, None))
    return PlannedTable(
        name,
        columns,
        primary_key,
        bucket_key,
        partition_keys,
        num_buckets=chance.choice((1, 1, 1, 2, 3, 16)),
        properties=_properties(chance, [each[0] for each in columns]) | of_lake,
        long=chance.random() < 0.5,
        partitions=random.Random(f"partitions/{columns}").choice(_PARTITIONS),
    )


def new_type(chance: random.Random) -> str:
    """Return any type."""
    return _type(chance, 2)


def nested_row(chance: random.Random) -> str:
    """Return a ROW that may be null, with one field that may not, and others of any type."""
    return f"ROW<r {chance.choice(_SCALARS)} NOT NULL, x {_type(chance, 2)}, y {_type(chance, 2)}>"


def _properties(chance: random.Random, names: list[str]) -> dict[str, str]:
    properties = {_ENABLED: "true", "table.datalake.freshness": _FRESH}
    if chance.random() < 0.5:
        properties[ROW_GROUP_ROWS] = str(chance.choice((1, 3, 10)))
    if chance.random() < 0.15:
        where = "default" if chance.random() < 0.5 else f"column.{chance.choice(names)}"
        properties[f"iceberg.write.metadata.metrics.{where}"] = chance.choice(_METRICS)
    if chance.random() < 0.2:
        properties["iceberg.write.target-file-size-bytes"] = chance.choice(("1", "2000"))
    if chance.random() < 0.2:
        properties["iceberg.write.parquet.compression-codec"] = chance.choice(("gzip", "snappy", "uncompressed", "lz4"))
    if chance.random() < 0.2:
        properties["table.log.arrow.compression.type"] = chance.choice(("NONE", "LZ4_FRAME"))
    if chance.random() < 0.1:
        properties["iceberg.write.metadata.metrics.max-inferred-column-defaults"] = "2"
    return properties


def _of_lake(columns: list[list[str]], partition_keys: list[str], *, keyed: bool) -> dict[str, str]:
    """Return how the lake table looks, and how rows are deleted there.

    It takes no chance of the plan's, whose seeds are known.
    """
    chance = random.Random(f"layout/{columns}")
    kind = chance.random()
    layout = {LAKE_LAYOUT.key: "legacy"} if kind > 0.7 else {}
    if kind < 0.35:
        layout = _of_rows(chance, columns, partition_keys)
    chance = random.Random(f"deletes/{columns}")
    if not keyed or chance.random() < 0.4:
        return layout
    version = {"iceberg.format-version": "3"} if chance.random() < 0.3 else {}
    deletes = chance.choice(("position", "position", "position", "equality"))
    return layout | {DELETE_FILES: "position" if LAKE_PARTITION_BY.key in layout else deletes} | version


def _of_rows(chance: random.Random, columns: list[list[str]], partition_keys: list[str]) -> dict[str, str]:
    """Return transforms of rows and a sort order."""
    plain = [(name, text.removesuffix(" NOT NULL")) for name, text in columns if re.fullmatch(r"\w+", name)]
    transforms = []
    for name, kind in chance.sample(plain, min(len(plain), chance.choice((1, 1, 2, 3)))):
        possible = [each for each in _TRANSFORMS if PartitionTransform("", *each).takes(DataType.parse(kind))]
        if possible and name not in partition_keys:
            transforms.append(PartitionTransform(name, *chance.choice(possible)))
    taken = {each[0].lower() for each in columns}
    transforms = [each for each in transforms if each.name == "identity" or each.field_name.lower() not in taken]
    found = {}
    if transforms:
        found[LAKE_PARTITION_BY.key] = ", ".join(each.in_sql(each.column) for each in transforms)
    sortable = [name for name, kind in plain if DataType.parse(kind).root not in NESTED]
    if sortable and chance.random() < 0.5:
        found["table.datalake.sort-by"] = ", ".join(chance.sample(sortable, min(len(sortable), 2)))
    return found


def _type(chance: random.Random, depth: int) -> str:
    required = " NOT NULL" if chance.random() < 0.3 else ""
    if depth and chance.random() < 0.3:
        root = chance.choice(("ARRAY", "MAP", "ROW", "ROW"))
        if root == "ARRAY":
            return f"ARRAY<{_type(chance, depth - 1)}>{required}"
        if root == "MAP":
            key = chance.choice(("INT", "STRING", "BIGINT", "DATE", "DECIMAL(5, 2)"))
            return f"MAP<{key} NOT NULL, {_type(chance, depth - 1)}>{required}"
        names = _Names(chance)
        fields = [f"`{names.new().replace('`', '``')}` {_type(chance, depth - 1)}" for _ in range(chance.randint(1, 3))]
        return f"ROW<{', '.join(fields)}>{required}"
    return f"{chance.choice(_SCALARS)}{required}"


class _Names:
    """Names that a table has once each, also without their case."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._taken: set[str] = set()

    def new(self) -> str:
        name = self._chance.choice(_NAMES) if self._chance.random() < 0.4 else f"c{len(self._taken)}"
        if name.lower() in self._taken:
            name = f"c{len(self._taken)}"
        self._taken.add(name.lower())
        return name
