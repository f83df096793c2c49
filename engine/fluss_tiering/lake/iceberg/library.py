"""Our Java library in Spark's JVM. All that asks or changes Iceberg is there: one call for one question, in JSON.

The commits of its tables are settled: each landed, certainly did not, or has an unknown outcome. Its
`SettledTableOperations` decides this, from the table's history, for every commit of every program. The jar comes with
this package and is loaded below Iceberg's classes, so that no setting of Spark has to name it.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
import zlib
from collections.abc import Iterable
from contextlib import ExitStack
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Any, Final, TypeAlias

from py4j.java_gateway import JavaObject, JVMView
from py4j.protocol import Py4JError
from pyspark import SparkContext

from fluss_tiering.lake.iceberg.java import java_error_text
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

JavaTable: TypeAlias = JavaObject
"""A `LakeTable` of the library, which is a table of Iceberg, too. It never refreshes by itself."""
JavaCatalog: TypeAlias = JavaObject
"""A catalog of Iceberg."""
JavaPlan: TypeAlias = JavaObject
"""A plan of a rewrite, which holds the data files that are replaced."""
_JAR: Final = "spark/jars/fluss-tiering-spark.jar"
_CLASS: Final = "fluss.tiering.iceberg.Library"

# Of a package in an archive, such as one of `--py-files`, the jar is a copy, which the JVM needs to the end.
_copies = ExitStack()
atexit.register(_copies.close)
_loading = threading.Lock()
logger = logging.getLogger(__name__)


def library(jvm: JVMView) -> JavaObject:
    """Return the `Library` of a JVM, which is loaded once. py4j would confuse two classes of the same name.

    Raises:
        FlussTieringError: INVALID_REQUEST if this package has no jar, or one of another version.
    """
    with _loading:
        return _loaded(jvm)


@lru_cache(maxsize=2)
def _loaded(jvm: JVMView) -> JavaObject:
    jar = files("fluss_tiering").joinpath(_JAR)
    try:
        new_array = SparkContext._gateway.new_array  # noqa: SLF001
        urls = new_array(jvm.java.net.URL, 1)
        urls[0] = jvm.java.io.File(str(_copies.enter_context(as_file(jar)))).toURI().toURL()
        above = jvm.org.apache.iceberg.BaseTable._java_lang_class.getClassLoader()  # noqa: SLF001
        found = jvm.java.net.URLClassLoader(urls, above).loadClass(_CLASS)
        return found.getConstructors()[0].newInstance(new_array(jvm.java.lang.Object, 0))
    except (FileNotFoundError, Py4JError) as error:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"this fluss-tiering cannot commit to lake tables: expected the class {_CLASS} in {jar}; run `make setup` "
            "in a checkout, or install a wheel; an archive for Spark's --py-files must contain the jar",
        ) from error


def ask(owner: JavaObject, question: str, *arguments: object) -> Any:  # noqa: ANN401 - what the question says
    """Return what the answer to a question says, which is JSON. Errors are those of `call`."""
    answer = call(owner, question, *arguments)
    if answer is not None and not isinstance(answer, str):
        # A long answer is asked for in parts.
        answer = zlib.decompress(b"".join(iter(answer.next, b"")))
    return None if answer is None else json.loads(answer)


def call(owner: JavaObject, question: str, *arguments: object) -> Any:  # noqa: ANN401 - what the question says
    """Return the answer to a question, which is a method of a Java object. Errors are those of the JVM.

    Args:
        owner: The object, such as a `JavaTable`.
        question: The name of the method.
        arguments: Objects of the JVM, texts and bytes; anything else is given as JSON.
    """
    given = [each if isinstance(each, JavaObject | str | bytes) else json.dumps(each) for each in arguments]
    return getattr(owner, question)(*given)


def delete_locations(table: JavaTable, locations: Iterable[str]) -> list[str]:
    """Delete files that no snapshot refers to; log and return those that could not be deleted."""
    wanted = list(locations)
    if not wanted:
        return []
    try:
        kept = ask(table, "deleteFiles", wanted)
    except Py4JError as error:
        kept = [(location, java_error_text(error)) for location in wanted]
    for location, why in kept:
        logger.warning("could not delete %s: %s", location, why)
    return [location for location, _ in kept]
