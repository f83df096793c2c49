"""Iceberg's table object whose commits are settled: each landed, certainly did not, or has an unknown outcome.

`SettledTableOperations` in our jar decides this, from the table's history, for every commit of every program. The
jar comes with this package and is loaded below Iceberg's classes, so that no setting of Spark has to name it.
"""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Final

from py4j.java_gateway import JavaObject, JVMView
from py4j.protocol import Py4JError
from pyspark import SparkContext

from fluss_tiering.lake.iceberg.java import iceberg_class
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_JAR: Final = "spark/jars/fluss-tiering-spark.jar"
_CLASS: Final = "fluss.tiering.iceberg.SettledTableOperations"

# Of a package in an archive, such as one of `--py-files`, the jar is a copy, which the JVM needs to the end.
_copies = ExitStack()
atexit.register(_copies.close)


def settled(jvm: JVMView, table: JavaObject) -> JavaObject:
    """Return a table object of the same table whose commits raise one of two exceptions, or have landed.

    A `CommitFailedException`, or a `ValidationException` before it, says that the commit did not land and never will.
    A `CommitStateUnknownException` says that nobody knows, so that no file may be deleted.

    Raises:
        FlussTieringError: INVALID_REQUEST if this package has no jar, or one of another version.
    """
    operations = _constructor(jvm).newInstance(_array(jvm, table.operations()))
    return iceberg_class(jvm, "BaseTable")(operations, table.name(), table.reporter())


@lru_cache(maxsize=2)
def _constructor(jvm: JVMView) -> JavaObject:
    jar = files("fluss_tiering").joinpath(_JAR)
    try:
        location = jvm.java.io.File(str(_copies.enter_context(as_file(jar)))).toURI().toURL()
        urls = SparkContext._gateway.new_array(jvm.java.net.URL, 1)  # noqa: SLF001
        urls[0] = location
        above = iceberg_class(jvm, "BaseTable")._java_lang_class.getClassLoader()  # noqa: SLF001
        return jvm.java.net.URLClassLoader(urls, above).loadClass(_CLASS).getConstructors()[0]
    except (FileNotFoundError, Py4JError) as error:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"this fluss-tiering cannot commit to lake tables: expected the class {_CLASS} in {jar}; run `make setup` "
            "in a checkout, or install a wheel; an archive for Spark's --py-files must contain the jar",
        ) from error


def _array(jvm: JVMView, value: JavaObject) -> JavaObject:
    array = SparkContext._gateway.new_array(jvm.java.lang.Object, 1)  # noqa: SLF001
    array[0] = value
    return array
