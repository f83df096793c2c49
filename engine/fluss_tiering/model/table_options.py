"""The options of a table, under Fluss's keys (its `ConfigOptions`), as the reference page Configuration lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.misspelled import meant
from fluss_tiering.model.units import parse_duration_ms


@dataclass(frozen=True, slots=True)
class TableOption:
    """An option in a table's properties.

    Attributes:
        type: The type of its value, in Fluss's words.
        default: The value if the option is not set.
        meaning: What the option does, for the documentation.
        only: Whether the default is the only value that is allowed, because no other one is implemented.
    """

    key: str
    type: str
    default: str
    meaning: str
    only: bool = False


LAKE_ENABLED: Final = TableOption(
    "table.datalake.enabled", "Boolean", "false", "Whether the table is tiered into the lake."
)
LAKE_FRESHNESS: Final = TableOption(
    "table.datalake.freshness",
    "Duration",
    "3min",
    "How far the lake table may fall behind before the table is Pending again.",
)
LAKE_TIER_WHEN_UNCHANGED: Final = TableOption(
    "table.datalake.tier-when-unchanged",
    "Boolean",
    "false",
    "Whether a table of the embedded storage is Pending at each freshness, as in Fluss, even if nothing was written "
    "since its last round.",
)
LAKE_DATABASE_NAME: Final = TableOption(
    "table.datalake.database-name",
    "String",
    "the table's database",
    "The namespace of the lake table. Fluss has it since 1.0.0, but refuses it for Iceberg.",
)
LAKE_TABLE_NAME: Final = TableOption(
    "table.datalake.table-name",
    "String",
    "the table's name",
    "The name of the lake table. Fluss has it since 1.0.0, but refuses it for Iceberg.",
)
LAKE_MAX_ROUND_DURATION: Final = TableOption(
    "table.datalake.max-round-duration",
    "Duration",
    "–",
    "How long a round may read. The table is then Pending again at once, for the rest. Without this option a round "
    "takes as long as it needs. It is not an option of Fluss: a table of a cluster has it as "
    "`fluss.table.datalake.max-round-duration`.",
)
LAKE_DELETE_FILES: Final = TableOption(
    "table.datalake.delete-files",
    "Enum",
    "position",
    "How rounds of a primary-key table delete rows in the lake. `position` writes position delete files, or deletion "
    "vectors in a lake table of format version 3. `equality` writes equality deletes, which name keys: rounds take "
    "less time, and fewer engines read the table, more slowly. Flink's tiering service of Fluss writes these, "
    "too. A table without a primary key cannot have the option. It is not an option of Fluss: a table of a cluster "
    "has it as `fluss.table.datalake.delete-files`.",
)
DELETE_FILES: Final = ("equality", "position")
"""The values of that option, in lower case."""
LAKE_COMMIT_BRANCH: Final = TableOption(
    "table.datalake.commit-branch",
    "String",
    "main",
    "The branch of the lake table that rounds commit to. With another one than `main`, readers see new rows only when "
    "`fluss-tiering publish` moves `main` forward, and Fluss is told of them only then. It is not an option of Fluss: "
    "a table of a cluster has it as `fluss.table.datalake.commit-branch`.",
)
LAKE_LAYOUT: Final = TableOption(
    "table.datalake.layout",
    "Enum",
    "clean",
    "The layout of a lake table that a round creates. `clean` has the columns of the table only, as Fluss 1.0.0 makes "
    "it, and no partition for the bucket. `legacy` has `__bucket`, `__offset` and `__timestamp`, too, as Fluss 0.9.1 "
    "makes it. A table gets the default when it is created. It is not an option of Fluss, and a cluster creates its "
    "lake tables itself.",
)
LAYOUTS: Final = ("clean", "legacy")
"""The values of that option."""
LAKE_PARTITION_BY: Final = TableOption(
    "table.datalake.partition-by",
    "String",
    "–",
    "How the lake table is partitioned when a round creates it, for example "
    "`days(at), bucket(16, user_id), region`: by columns, or by `years`, `months`, `days`, `hours`, `bucket(N, …)` and "
    "`truncate(N, …)` of them. The lake table has none of Fluss's three columns then. Later, change its partitioning "
    "in SQL, and the next round follows. It is not an option of Fluss, and a cluster creates its lake tables itself.",
)
LAKE_SORT_BY: Final = TableOption(
    "table.datalake.sort-by",
    "String",
    "–",
    "The columns by which the rows of each file are sorted, for example `region, at`. The lake table that a round "
    "creates has this sort order, and none of Fluss's three columns. Later, change it in SQL (`WRITE ORDERED BY`), and "
    "the next round follows. It is not an option of Fluss, and a cluster creates its lake tables itself.",
)
LAKE_EXISTING_ROWS: Final = TableOption(
    "table.datalake.existing-rows",
    "Enum",
    "refuse",
    "What the first round does if the lake table is there already and has rows. `refuse` is an error. `keep` adds to "
    "them; in a primary-key table, rows of Fluss replace those with their keys. It is not an option of Fluss, whose "
    "clusters take over empty lake tables only.",
)
EXISTING_ROWS: Final = ("refuse", "keep")
"""The values of that option."""
LAKE_RECORD_EXPIRE_TIME: Final = TableOption(
    "table.datalake.record-level.expire-time",
    "Duration",
    "–",
    "After which time records leave the lake table: `fluss-tiering maintain` deletes those whose "
    "`table.datalake.record-level.time-field` is older. Fluss keeps its own by `table.log.ttl` and `table.kv.ttl`. It "
    "is not an option of Fluss: a table of a cluster has it as `fluss.table.datalake.record-level.expire-time`.",
)
LAKE_RECORD_TIME_FIELD: Final = TableOption(
    "table.datalake.record-level.time-field",
    "String",
    "–",
    "The DATE, TIMESTAMP or TIMESTAMP_LTZ column that says how old a record is. A record without a value stays. It is "
    "not an option of Fluss: a table of a cluster has it as `fluss.table.datalake.record-level.time-field`.",
)
LAKE_AUTO_COMPACTION: Final = TableOption(
    "table.datalake.auto-compaction",
    "Boolean",
    "false",
    "Whether the lake table is compacted automatically: small files, and files with deletes, are rewritten into larger "
    "files. `fluss-tiering tier --drain --follow` does this between rounds, and `fluss-tiering maintain` without names "
    "of tables does it when it is run.",
)
LAKE_AUTO_EXPIRE_SNAPSHOT: Final = TableOption(
    "table.datalake.auto-expire-snapshot",
    "Boolean",
    "false",
    "Whether old snapshots of the lake table, and the files that only they need, are removed automatically, by the "
    "same two commands. The properties `history.expire.*` of the lake table say what is old. By default, a snapshot is "
    "old after 5 days, and the newest one is kept.",
)
LOG_COMPRESSION: Final = TableOption(
    "table.log.arrow.compression.type", "Enum", "ZSTD", "The compression of log batches: NONE, LZ4_FRAME or ZSTD."
)
ICEBERG_TARGET_FILE_SIZE: Final = TableOption(
    "iceberg.write.target-file-size-bytes",
    "Long",
    "536870912",
    "A data file that reaches this size, in bytes, is closed.",
)
ICEBERG_CODEC: Final = TableOption(
    "iceberg.write.parquet.compression-codec",
    "String",
    "zstd",
    "The compression of data files and delete files: zstd, gzip, snappy, lz4, brotli or uncompressed.",
)
ICEBERG_LEVEL: Final = TableOption(
    "iceberg.write.parquet.compression-level",
    "Integer",
    "the codec's own",
    "The compression level, if the codec has levels.",
)
ICEBERG_DELETE_OLD_METADATA: Final = TableOption(
    "iceberg.write.metadata.delete-after-commit.enabled",
    "Boolean",
    "true",
    "Whether a commit deletes the oldest metadata file of the lake table once there are more than "
    "`write.metadata.previous-versions-max` (100). It holds for lake tables that a round creates. A Fluss cluster "
    "creates its lake tables itself, with Iceberg's own default, `false`.",
)
LAKE_FORMAT: Final = TableOption(
    "table.datalake.format", "Enum", "ICEBERG", "The lake that the table is tiered into.", only=True
)
FIXED: Final = (
    LAKE_FORMAT,
    TableOption("table.replication.factor", "Integer", "1", "How many servers keep the table.", only=True),
    TableOption("table.log.format", "Enum", "ARROW", "The format of log batches.", only=True),
    TableOption(
        "table.log.arrow.compression.zstd.level", "Integer", "3", "The level of ZSTD in log batches.", only=True
    ),
    TableOption("table.kv.format", "Enum", "COMPACTED", "The format of the rows of a primary-key table.", only=True),
    TableOption(
        "table.kv.value-layout-version",
        "Integer",
        "1",
        "The layout of the stored rows of a primary-key table: 2 has a tag for `table.kv.ttl`, which clusters have.",
        only=True,
    ),
    TableOption("table.changelog.image", "Enum", "FULL", "How much of a changed row the changelog has.", only=True),
    TableOption("table.delete.behavior", "Enum", "ALLOW", "Whether rows may be deleted.", only=True),
)
"""The options that would change how data is stored and where it is tiered to."""
ICEBERG_FORMAT_VERSION: Final = TableOption(
    "iceberg.format-version",
    "Integer",
    "2",
    "The format version of the lake table: 2 or 3. Deletion vectors need version 3, which fewer engines read.",
)
FORMAT_VERSIONS: Final = ("2", "3")
ICEBERG_FIXED: Final = (
    TableOption("iceberg.write.format.default", "String", "parquet", "The format of data files.", only=True),
)
"""The options of the lake table that would change what a round has to write."""

TABLE_OPTIONS: Final = (
    LAKE_ENABLED,
    LAKE_FRESHNESS,
    LAKE_TIER_WHEN_UNCHANGED,
    LAKE_MAX_ROUND_DURATION,
    LAKE_DELETE_FILES,
    LAKE_COMMIT_BRANCH,
    LAKE_LAYOUT,
    LAKE_PARTITION_BY,
    LAKE_SORT_BY,
    LAKE_EXISTING_ROWS,
    LAKE_RECORD_EXPIRE_TIME,
    LAKE_RECORD_TIME_FIELD,
    LAKE_AUTO_COMPACTION,
    LAKE_AUTO_EXPIRE_SNAPSHOT,
    LAKE_DATABASE_NAME,
    LAKE_TABLE_NAME,
    LOG_COMPRESSION,
    ICEBERG_FORMAT_VERSION,
    ICEBERG_TARGET_FILE_SIZE,
    ICEBERG_CODEC,
    ICEBERG_LEVEL,
    ICEBERG_DELETE_OLD_METADATA,
    *FIXED,
    *ICEBERG_FIXED,
)

KV_TTL: Final = "table.kv.ttl"
"""The option of clusters (Fluss 1.0) after which time rows of a primary-key table expire, without a changelog."""
MERGE_ENGINE: Final = "table.merge-engine"
DELETE_BEHAVIOR: Final = "table.delete.behavior"
"""The option of clusters that says what becomes of a row of a primary-key table that is written again."""

OWN_PREFIX: Final = "table."
"""Keys with this prefix are Fluss's. Any other key is an option of the user's own."""
LAKE_TABLE_PREFIX: Final = "iceberg."
"""An option with this prefix becomes a property of the lake table, as Iceberg knows it."""
CUSTOM_PREFIX: Final = "fluss."
"""Before the key of an option that Fluss does not know, the custom property by which a table of a cluster has it.

Fluss writes an option down in a property of the lake table that is called the same.
"""
LAKE_CATALOG_PREFIX: Final = "table.datalake.iceberg."
"""A table option with this prefix overrides a property of the server's lake catalog for its table."""
OWN_OF_CLUSTERS: Final = tuple(
    CUSTOM_PREFIX + option.key
    for option in (
        LAKE_DELETE_FILES,
        LAKE_MAX_ROUND_DURATION,
        LAKE_COMMIT_BRANCH,
        LAKE_RECORD_EXPIRE_TIME,
        LAKE_RECORD_TIME_FIELD,
    )
)
"""The custom properties by which tables of clusters have the options that Fluss does not know."""
_DEFINITION: Final = {
    "bucket.num": "the number of its buckets (--buckets)",
    "bucket.key": "its bucket key (--bucket-key)",
}
"""What Fluss's connectors for SQL take among the options of a table, and what part of the definition it is."""
_KNOWN: Final = {option.key: option for option in TABLE_OPTIONS}
_SHORTENED: Final = ("", "table.", "table.datalake.")
"""What is easily left out before the name of an option."""


def check_option_key(key: str) -> None:
    """Check that a key is an option of tables, a property of the lake, or an option of the user's own.

    As in Fluss, keys that begin with "table." are options. A user's own key that is almost one is taken for a mistake.

    Raises:
        FlussTieringError: INVALID_TABLE if it is not; the message names the option that was meant.
    """
    if key in _KNOWN or key in OWN_OF_CLUSTERS or key.startswith((LAKE_TABLE_PREFIX, LAKE_CATALOG_PREFIX)):
        return
    if key in _DEFINITION:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"{key!r} is not a table option: expected it in the definition when the table is created, as "
            f"{_DEFINITION[key]}; a table that exists keeps what it has",
        )
    if not key.strip():
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE, f"an option has the key {key!r}: expected a name, for example {LAKE_FRESHNESS.key}"
        )
    nearest = _meant(key)
    if nearest or key.startswith(OWN_PREFIX):
        hint = f" (did you mean {nearest}?)" if nearest else ""
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"{key!r} is not a table option{hint}: expected one of those that the documentation lists on its page "
            f"Configuration under Tables, or a name of your own that does not begin with {OWN_PREFIX}",
        )


def _meant(key: str) -> str | None:
    """Return the option that a key was probably meant to be; None if none is near."""
    plain = key.strip().lower().replace("_", "-")
    completed = (prefix + plain for prefix in _SHORTENED)
    return next((each for each in completed if each in _KNOWN), None) or meant(plain, _KNOWN)


def value_of_own(properties: Mapping[str, str], option: TableOption) -> str | None:
    """Return the value of an option that Fluss does not know; None if the table does not have it.

    Clusters refuse an unknown key that begins with "table.". They keep each custom property, so the option is also
    looked for with `CUSTOM_PREFIX` in front.
    """
    return properties.get(option.key, properties.get(CUSTOM_PREFIX + option.key))


def delete_files_of(properties: Mapping[str, str]) -> str:
    """Return how rounds of a table delete rows by its option `LAKE_DELETE_FILES`: one of `DELETE_FILES`."""
    return (value_of_own(properties, LAKE_DELETE_FILES) or LAKE_DELETE_FILES.default).lower()


def has_clean_layout(properties: Mapping[str, str]) -> bool:
    """Return whether a round creates the lake table of a table with these options in the clean layout.

    A table of the embedded storage gets the option when it is created. One without it was made before there was one.
    """
    layout = properties.get(LAKE_LAYOUT.key, "legacy")
    return layout.lower() == "clean" or not properties.keys().isdisjoint({LAKE_PARTITION_BY.key, LAKE_SORT_BY.key})


def keeps_existing_rows(properties: Mapping[str, str]) -> bool:
    """Return whether the first round adds to a lake table that has rows already."""
    return properties.get(LAKE_EXISTING_ROWS.key, LAKE_EXISTING_ROWS.default).lower() == "keep"


def sort_columns_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of the option `LAKE_SORT_BY`; none if the table does not have it."""
    text = properties.get(LAKE_SORT_BY.key)
    return () if text is None else tuple(each.strip().strip("`") for each in text.split(","))


def commit_branch_of(properties: Mapping[str, str]) -> str:
    """Return the branch of the lake table that rounds of a table commit to."""
    return value_of_own(properties, LAKE_COMMIT_BRANCH) or LAKE_COMMIT_BRANCH.default


def is_set(properties: Mapping[str, str], option: TableOption) -> bool:
    """Return whether an option whose value is true or false is true among a table's properties.

    Raises:
        FlussTieringError: INVALID_TABLE if the option's value is neither.
    """
    value = properties.get(option.key, option.default).strip().lower()
    if value not in ("true", "false"):
        raise FlussTieringError(ErrorCode.INVALID_TABLE, f"{option.key} is {value!r}: expected true or false")
    return value == "true"


def check_tiering_options(properties: Mapping[str, str]) -> None:
    """Check the options that decide about the tiering of a table, also those that only drivers use.

    Raises:
        FlussTieringError: INVALID_TABLE if an option has an invalid value.
    """
    for option in (LAKE_ENABLED, LAKE_TIER_WHEN_UNCHANGED, LAKE_AUTO_COMPACTION, LAKE_AUTO_EXPIRE_SNAPSHOT):
        is_set(properties, option)
    freshness_ms(properties)
    max_round_duration_ms(properties)


def freshness_ms(properties: Mapping[str, str]) -> int:
    """Return the table's freshness in milliseconds.

    Raises:
        FlussTieringError: INVALID_TABLE if the option's value is not a duration.
    """
    return _duration_ms(LAKE_FRESHNESS, properties.get(LAKE_FRESHNESS.key, LAKE_FRESHNESS.default))


def max_round_duration_ms(properties: Mapping[str, str]) -> int | None:
    """Return how long a round of the table may read, in milliseconds; None if the option is not set.

    Raises:
        FlussTieringError: INVALID_TABLE if the option's value is not a duration.
    """
    value = value_of_own(properties, LAKE_MAX_ROUND_DURATION)
    return None if value is None else _duration_ms(LAKE_MAX_ROUND_DURATION, value)


def record_expiry(properties: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the column that says how old a record of the lake table is, and after how many milliseconds it expires.

    Returns:
        None if records do not expire.

    Raises:
        FlussTieringError: INVALID_TABLE if only one of the two options is set, or if the time is not a duration.
    """
    after, column = (value_of_own(properties, each) for each in (LAKE_RECORD_EXPIRE_TIME, LAKE_RECORD_TIME_FIELD))
    if after is None and column is None:
        return None
    if after is None or column is None:
        named = (LAKE_RECORD_EXPIRE_TIME.key, LAKE_RECORD_TIME_FIELD.key)
        given, missing = named if column is None else reversed(named)
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE, f"{given} is set and {missing} is not: expected both options or none"
        )
    return column, _duration_ms(LAKE_RECORD_EXPIRE_TIME, after)


def _duration_ms(option: TableOption, value: str) -> int:
    try:
        return parse_duration_ms(value)
    except FlussTieringError as error:
        raise FlussTieringError(ErrorCode.INVALID_TABLE, f"{option.key}: {error.message}") from error
