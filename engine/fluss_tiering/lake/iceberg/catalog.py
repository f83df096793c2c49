"""The Iceberg catalog of a Spark session. It is configured at run time and used through the JVM."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from typing import Final

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.java import (
    JAVA_ERRORS,
    causes,
    is_iceberg,
    java_error_text,
    java_session_of,
    jvm_of,
    lake_errors,
)
from fluss_tiering.lake.iceberg.layout import (
    SORT_COLUMN,
    bucketed_partition_of,
    clean_partition,
    has_text_keys,
    is_clean,
    partition_of,
    schema_json,
    table_properties,
)
from fluss_tiering.lake.iceberg.library import JavaCatalog, JavaTable, ask, call, library
from fluss_tiering.lake.iceberg.metadata.followed_columns import changes, followed, following
from fluss_tiering.lake.iceberg.metadata.own_commits import newest_own_commit
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.iceberg.validation import LakeLayout, check_layout, row_transforms
from fluss_tiering.lake.names import catalog_name, lake_table_name, quoted
from fluss_tiering.model.error_text import is_hidden, mask_secrets
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.table_options import (
    LAKE_COMMIT_BRANCH,
    LAKE_TABLE_NAME,
    LAKE_TABLE_PREFIX,
    commit_branch_of,
    sort_columns_of,
)

_IDENTITY: Final = frozenset({"type", "catalog-impl", "uri", "warehouse"})
"""The properties that decide which tables a catalog holds."""
_REST_TIME_LIMITS: Final = {"rest.client.connection-timeout-ms": "10000", "rest.client.socket-timeout-ms": "60000"}
_POSTGRESQL_TIME_LIMITS: Final = {"jdbc.connectTimeout": "10", "jdbc.socketTimeout": "60"}
"""Without these limits both clients, and the rounds that use them, wait for minutes or for ever for a catalog."""
_HEADER: Final = "header."
"""How properties begin that become headers of a REST catalog's calls, such as `header.Authorization`."""
_FORMAT_VERSION: Final = "format-version"
_REFUSED_REQUESTS: Final = frozenset(
    {"BadRequestException", "IllegalArgumentException", "UnsupportedOperationException", "ValidationException"}
)
"""The exceptions with which catalogs answer a request that they understand and do not serve."""
_TRIES_TO_FOLLOW: Final = 4
"""How often the columns of a lake table are changed, if somebody else commits meanwhile."""
_ICEBERG_CLASSES: Final = "org.apache.iceberg."
_CACHING_CATALOG: Final = "CachingCatalog"
_SPARK_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"


class IcebergCatalogs:
    """Opens lake tables in the catalogs that their properties name. It is a `LakeCatalog`, safe for several threads.

    A catalog's properties become settings `spark.sql.catalog.<name>.*` of the session, so that its Spark SQL sees the
    same tables. A setting that the session already has wins, for example a cluster's own credentials. A setting that
    would make it another catalog is an error.

    Spark gives the settings of a session to each job of its SQL, and writes them into the event log. So the secrets are
    masked there as soon as the catalog is loaded, which keeps its properties.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._catalogs: dict[str, tuple[Mapping[str, str], JavaCatalog]] = {}
        self._lock = threading.Lock()

    def open_table(self, table: TableInfo) -> IcebergTable:
        """Create the lake table of a table and return it; that which is there if somebody has created it.

        Raises:
            FlussTieringError: LAKE_TABLE_MISMATCH if a lake table with another layout exists; INVALID_TABLE if the
                table cannot be tiered to Iceberg; STORAGE if the lake cannot be reached.
        """
        catalog = self._catalog(table.lake_catalog_properties)
        with lake_errors(f"open the lake table {table.lake_path}"):
            handle = self._create(catalog, table)
        return self._opened(table, handle)

    def find_table(self, table: TableInfo, *, follow: bool = False) -> IcebergTable | None:
        """Return the lake table of a table; None if there is none.

        Args:
            follow: Whether the columns of the lake table are changed first as those of the table were.

        Raises:
            FlussTieringError: LAKE_TABLE_MISMATCH if a lake table with another layout exists; INVALID_TABLE if the
                table cannot be tiered to Iceberg; STORAGE if the lake cannot be reached.
        """
        self._catalog(table.lake_catalog_properties)
        with lake_errors(f"open the lake table {table.lake_path}"):
            handle = self._load(table)
        if handle is None:
            return None
        if follow and table.schemas:
            with lake_errors(f"change the columns of the lake table {table.lake_path}"):
                handle = self._followed(table, handle)
        return self._opened(table, handle)

    def _followed(self, table: TableInfo, handle: JavaTable) -> JavaTable:
        """Return a lake table after its columns were changed as those of its table were. Errors are those of the JVM.

        Whether a commit has landed is looked up, since the lake table says whose columns it has.
        """
        for attempt in range(_TRIES_TO_FOLLOW):
            described = ask(handle, "describe")
            before = followed(table, handle, described)
            if before.schema_id == table.schema_id and described["properties"].items() >= following(table).items():
                break
            try:
                call(handle, "changeColumns", changes(before, table, described))
            except JAVA_ERRORS:
                if attempt == _TRIES_TO_FOLLOW - 1:
                    raise
            handle = self._load(table) or handle
        return handle

    def _load(self, table: TableInfo) -> JavaTable | None:
        catalog = self._catalog(table.lake_catalog_properties)
        return call(self._library(), "load", catalog, str(table.lake_path), _branch(table))

    def _library(self) -> JavaObject:
        return library(jvm_of(self._spark))

    def _opened(self, table: TableInfo, handle: JavaTable) -> IcebergTable:
        with lake_errors(f"open the lake table {table.lake_path}"):
            described = ask(handle, "describe")
        table = followed(table, handle, described)
        name = lake_table_name(table)
        if described["commitsToTag"]:
            tag = _branch(table)
            raise FlussTieringError(
                ErrorCode.LAKE_TABLE_MISMATCH,
                f"the option {LAKE_COMMIT_BRANCH.key} of the table {table.path} is {tag!r}, which is a tag of the lake "
                f"table {name}: expected a branch, or the name of a new one; alter the option, or "
                f"ALTER TABLE {name} DROP TAG {quoted(tag)}",
            )
        layout = LakeLayout(
            schema=described["schema"],
            specs=described["specs"],
            other_specs_in_use=described["otherSpecsInUse"],
            format_version=described["formatVersion"],
        )
        try:
            clean = is_clean(name, {field["name"] for field in layout.schema["fields"]})
            expected, partition = schema_json(table.descriptor, clean=clean), partition_of(table, clean=clean)
            spec = check_layout(name, layout, expected, partition)
        except FlussTieringError as error:
            if error.code is not ErrorCode.LAKE_TABLE_MISMATCH:
                raise
            # To alter the lake table of another table, as the error of its layout says, would not help.
            if newest_own_commit(table, handle) is not None:
                raise
            raise FlussTieringError(
                error.code,
                f"the lake table {name} as it is now has no commit of tiering. If it was replaced, for example by "
                "CREATE OR REPLACE TABLE, rename it away, and register the metadata file from before, which "
                f"{name}.metadata_log_entries lists, by Spark's procedure register_table. If it is another one, give "
                f"the right one its name back. Otherwise {error.message}",
            ) from None
        catalog = self._catalog(table.lake_catalog_properties)
        reload = partial(call, self._library(), "reload", catalog, str(table.lake_path), _branch(table))
        by_rows = row_transforms(layout.schema, spec)
        bucketed = bucketed_partition_of(table) if clean else None
        has_bucket = by_rows is None or by_rows == bucketed
        # Rows to delete may be in files of another spec, which do not tell buckets apart.
        is_mixed = table.has_primary_key and layout.other_specs_in_use
        if by_rows in (partition, bucketed) and has_text_keys(table.descriptor) and not is_mixed:
            by_rows = None
        by_bucket = by_rows is None and has_bucket
        return IcebergTable(table, handle, described, spec, reload=reload, by_bucket=by_bucket, by_rows=by_rows)

    def _create(self, catalog: JavaCatalog, table: TableInfo) -> JavaTable:
        clean = clean_partition(table)
        fields = partition_of(table) if clean is None else clean
        asked = {
            "schema": schema_json(table.descriptor, clean=clean is not None),
            "fields": [(field.column, field.name, field.number) for field in fields],
            "properties": {**table_properties(table.descriptor), **(following(table) if table.schemas else {})},
            "sortedBy": (SORT_COLUMN,) if clean is None else sort_columns_of(table.descriptor.properties),
        }
        try:
            return call(self._library(), "create", catalog, str(table.lake_path), _branch(table), asked)
        except JAVA_ERRORS as error:
            if is_iceberg(error, "AlreadyExistsException"):
                raise FlussTieringError(
                    ErrorCode.LAKE_TABLE_MISMATCH,
                    f"the lake catalog has a view with the name {table.lake_path} of the lake table: drop or rename "
                    f"the view, or drop the table and create it with the option {LAKE_TABLE_NAME.key}",
                ) from None
            version = table_properties(table.descriptor).get(_FORMAT_VERSION)
            if version is not None and _is_refused_request(error):
                raise FlussTieringError(
                    ErrorCode.STORAGE,
                    f"the lake catalog does not create {table.lake_path} with format version {version}, which the "
                    f"option {LAKE_TABLE_PREFIX}{_FORMAT_VERSION} asks for: {java_error_text(error)}: use a catalog "
                    "that knows this version, or create the table again without the option",
                ) from None
            raise

    def _catalog(self, properties: Mapping[str, str]) -> JavaCatalog:
        name = catalog_name(properties)
        with self._lock:
            if name not in self._catalogs:
                self._catalogs[name] = (properties, self._open_catalog(name, properties))
            opened_with, catalog = self._catalogs[name]
        if opened_with != properties:
            raise FlussTieringError(
                ErrorCode.STORAGE,
                f"two lake catalogs have the name {name!r} but different properties: give another name to the catalog "
                "of the table that overrides properties, or tier the tables in separate applications",
            )
        return catalog

    def _open_catalog(self, name: str, properties: Mapping[str, str]) -> JavaCatalog:
        if not any(key in properties for key in ("type", "catalog-impl")):
            raise FlussTieringError(
                ErrorCode.STORAGE,
                f"the lake catalog {name!r} of the server has neither 'type' nor 'catalog-impl': "
                "set the server's datalake.iceberg.* options",
            )
        prefix = f"spark.sql.catalog.{name}"
        # A cached table would hide commits of others, and that a table was dropped and created again.
        wanted = {prefix: _SPARK_CATALOG, f"{prefix}.cache-enabled": "false"}
        bounded = {**_time_limits(properties), **properties}
        wanted.update({f"{prefix}.{key}": value for key, value in bounded.items() if key != "name"})
        masked = {key: _masked(key.removeprefix(f"{prefix}."), value) for key, value in wanted.items()}
        for key, value in wanted.items():
            if is_hidden(value) and self._spark.conf.get(key, None) is None:
                raise _hidden(name, key, value)
        made: list[str] = []
        for key, value in wanted.items():
            present = self._spark.conf.get(key, None)
            if is_hidden(value):
                # Whoever runs this application has given what the server hides.
                continue
            # A secret that is masked is one of a catalog that could not be loaded before. Nobody may cache tables.
            if present is None or present == masked[key] != value or key == f"{prefix}.cache-enabled":
                self._spark.conf.set(key, value)
                made.append(key)
            elif key == prefix and not present.startswith(_ICEBERG_CLASSES):
                raise FlussTieringError(
                    ErrorCode.STORAGE,
                    f"the Spark session's catalog {name!r} is a {present}, not an Iceberg catalog: give the server's "
                    "lake catalog another name, or remove the setting from Spark",
                )
            elif present != value and key.removeprefix(f"{prefix}.") in _IDENTITY:
                raise FlussTieringError(
                    ErrorCode.STORAGE,
                    f"the Spark session's {key} is {present}, but the server's lake catalog has {value}: "
                    "remove the setting from Spark, or give one of the catalogs another name",
                )
        with lake_errors(f"open the lake catalog {name!r} ({properties.get('type')})"):
            # Iceberg configures catalogs from the active session of the JVM's thread; a new thread has none.
            session = java_session_of(self._spark)
            jvm_of(self._spark).SparkSession.setActiveSession(session)
            try:
                opened = session.sessionState().catalogManager().catalog(name).icebergCatalog()
                if opened.getClass().getSimpleName() == _CACHING_CATALOG:
                    raise FlussTieringError(
                        ErrorCode.STORAGE,
                        f"the Spark session caches the tables of its catalog {name!r}, so that it would not see the "
                        f"commits of others: set {prefix}.cache-enabled to false before the session uses the catalog",
                    )
                return opened
            finally:
                for key in made:
                    if masked[key] != wanted[key]:
                        self._spark.conf.set(key, masked[key])


def _branch(table: TableInfo) -> str:
    return commit_branch_of(table.descriptor.properties)


def _hidden(name: str, key: str, value: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.AUTHORIZATION,
        f"the server hides a setting of the lake catalog {name!r} from this caller, since it may be secret ({value}): "
        f"call with the role tierer for the table, or give Spark the setting {key}",
    )


def _is_refused_request(error: Py4JError | PySparkException) -> bool:
    if not isinstance(error, Py4JJavaError):
        # pyspark has exceptions of its own for some of Java's, with the same names.
        return type(error).__name__ in _REFUSED_REQUESTS
    return any(exception.getClass().getSimpleName() in _REFUSED_REQUESTS for exception in causes(error))


def _masked(key: str, value: str) -> str:
    """Return the value of a catalog's property without its secrets."""
    return "***" if key.startswith(_HEADER) else mask_secrets(f"{key}={value}").removeprefix(f"{key}=")


def _time_limits(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return limits for the time that a catalog takes to connect and to answer; its own properties replace them."""
    if properties.get("type") == "rest":
        return _REST_TIME_LIMITS
    return _POSTGRESQL_TIME_LIMITS if properties.get("uri", "").startswith("jdbc:postgresql:") else {}
