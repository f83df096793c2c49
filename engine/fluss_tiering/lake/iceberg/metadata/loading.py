"""Loads a table from its catalog, and does not wait for a metadata file that cannot become readable.

Iceberg's JDBC catalog reads a metadata file again and again when that fails, for about 95 seconds. This helps while a
store is away. A file that is damaged stays so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from py4j.java_gateway import JavaObject, JVMView
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from fluss_tiering.lake.damaged_parquet import FORBIDDEN, MISSING
from fluss_tiering.lake.iceberg.java import JAVA_ERRORS, causes, is_denied, is_iceberg, root_message, root_text
from fluss_tiering.lake.iceberg.metadata.jvm_functions import functions_of
from fluss_tiering.lake.iceberg.metadata.unreadable import metadata_file_error, unreadable_metadata_file
from fluss_tiering.model.errors import FlussTieringError

_JDBC: Final = "org.apache.iceberg.jdbc.JdbcCatalog"
_JDBC_UTIL: Final = "org.apache.iceberg.jdbc.JdbcUtil"
_LOCATION: Final = "metadata_location"
_NAMED: Final = re.compile(r"Failed to (?:read|open input stream for) file: (?P<location>\S+\.metadata\.json\S*)")
_GONE: Final = re.compile(r"Metadata file for version (?P<version>\d+) is missing under (?P<folder>\S+)")
"""What Iceberg's Hadoop catalog says."""
_PARSER: Final = "jackson"
"""Occurs in the names of the classes of Iceberg's parser of JSON."""
_QUICK_MS: Final = 2_000
"""How long a load may take before the metadata file is looked at. A usual one takes some milliseconds."""


def load_table(jvm: JVMView, catalog: JavaObject, identifier: JavaObject) -> JavaObject:
    """Return a table of a catalog. All errors but one are those of the JVM.

    Raises:
        FlussTieringError: CORRUPT_DATA if the table's metadata file is missing or damaged.
    """
    if str(catalog.getClass().getName()) != _JDBC:
        try:
            return catalog.loadTable(identifier)
        except Py4JJavaError as error:
            raise _named(error) or error from None
    functions = functions_of(jvm)
    load = functions.method("catalog.Catalog", "loadTable", "Table", "catalog.TableIdentifier")
    future = functions.in_background(load.bindTo(catalog).bindTo(identifier))
    try:
        return settled(jvm, future, lambda: _damage(jvm, catalog, identifier))
    except Py4JJavaError as error:
        cause = error.java_exception.getCause()
        raise Py4JJavaError("could not load the table", error.java_exception if cause is None else cause) from None


def settled(jvm: JVMView, future: JavaObject, look: Callable[[], FlussTieringError | None]) -> JavaObject:
    """Return the result of a load, which is cancelled if it takes long and can never succeed.

    Args:
        jvm: The JVM.
        future: The load.
        look: Returns why the load can never succeed; None if it may.

    Raises:
        FlussTieringError: What `look` returns.
    """
    try:
        try:
            return functions_of(jvm).result_within(future, _QUICK_MS)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "TimeoutException":
                raise
            if (damage := look()) is not None:
                # This ends the pauses between its tries.
                future.cancel(True)
                raise damage from None
            return future.get()
    except Py4JJavaError as error:
        cause = error.java_exception.getCause()
        missing = cause is not None and str(cause.getClass().getSimpleName()) == "NoSuchTableException"
        damage = None if missing else look()
        if damage is None:
            raise
        raise damage from None


def _damage(jvm: JVMView, catalog: JavaObject, identifier: JavaObject) -> FlussTieringError | None:
    """Return the error of the metadata file that a JDBC catalog names; None if the file can be read."""
    try:
        operations = _called(jvm, catalog, catalog.getClass(), "newTableOps", identifier)
        util = operations.getClass().getClassLoader().loadClass(_JDBC_UTIL)
        given = [_field(operations, name) for name in ("schemaVersion", "connections", "catalogName")]
        location = _called(jvm, None, util, "loadTable", *given, identifier).get(_LOCATION)
        return None if location is None else unreadable_metadata_file(jvm, operations.io(), str(location))
    except (*JAVA_ERRORS, StopIteration):  # the catalog does not answer, which the load says, or is of another version
        return None


def _called(
    jvm: JVMView, owner: JavaObject | None, kind: JavaObject, name: str, *arguments: JavaObject | str
) -> JavaObject:
    """Return the result of a method that is not public. Iceberg has no other way to the location of the metadata."""
    method = next(each for each in kind.getDeclaredMethods() if each.getName() == name)
    values = SparkContext._gateway.new_array(jvm.java.lang.Object, len(arguments))  # noqa: SLF001
    for number, each in enumerate(arguments):
        values[number] = each
    method.setAccessible(True)
    return method.invoke(owner, values)


def _field(owner: JavaObject, name: str) -> JavaObject | str:
    found = owner.getClass().getDeclaredField(name)
    found.setAccessible(True)
    return found.get(owner)


def _named(error: Py4JJavaError) -> FlussTieringError | None:
    """Return the error of a metadata file that other catalogs' errors name; None if the cause is another one."""
    chain = list(causes(error))
    named = next(filter(None, (_NAMED.search(each.getMessage() or "") for each in chain)), None)
    if named is None:
        gone = _GONE.search(root_message(error))
        return gone and metadata_file_error(f"{gone['folder']}/v{gone['version']}.metadata.json", MISSING)
    if is_iceberg(error, "NotFoundException"):
        return metadata_file_error(named["location"], FORBIDDEN if is_denied(error) else MISSING)
    if any(_PARSER in str(each.getClass().getName()) for each in chain):
        return metadata_file_error(named["location"], f"is damaged: {root_text(error)}")
    return None
