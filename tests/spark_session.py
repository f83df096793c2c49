"""The Spark session of a run of tests: one of its own, or one in a JVM that runs already.

Run as a program it starts a session and prints two lines, the port and the secret of the JVM. As environment variables
of other runs they are PYSPARK_GATEWAY_PORT and PYSPARK_GATEWAY_SECRET, which are pyspark's own names. The JVM ends when
the standard input of the program does.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PORT_VARIABLE = "PYSPARK_GATEWAY_PORT"
JVM_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m"
"""The optimising compiler takes longer than it saves in a run of tests. Without it Java keeps 48 MB for compiled code,
which is too little for a run: the JVM would throw away and compile again what it uses."""


def start(warehouse: Path) -> SparkSession:
    """Start a session on two cores whose tasks may fail once, with the archive of classes if a variable names one."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - most tests need none of this

    from fluss_tiering.spark.startup.catalog_conf import session_conf  # noqa: PLC0415
    from fluss_tiering.spark.startup.jvm import ARCHIVE_VARIABLE  # noqa: PLC0415
    from fluss_tiering.spark.startup.workers import local_workers_conf  # noqa: PLC0415
    from fluss_tiering.spark.submit import spark_conf  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = "local[2,2]"
    archive = os.environ.get(ARCHIVE_VARIABLE)
    classes = f' "-XX:SharedArchiveFile={archive}"' if archive else ""
    builder = SparkSession.builder.master(master).appName("tests")
    for key, value in {**spark_conf(), **session_conf(), **local_workers_conf(master, sys.executable)}.items():
        builder = builder.config(key, value)
    session = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", f"{JVM_OPTIONS} -Xmn384m{classes}")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def attach() -> SparkSession:
    """Return a session of its own, with its own settings and catalogs, in the JVM that the environment names."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    gateway = launch_gateway()
    running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(running)
    conf = SparkConf(_jconf=context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf)).newSession()


def forget_unanswered_call() -> None:
    """Close this thread's connection to the JVM, so that the next call makes a new one.

    A test whose time ended may have left a call without reading its answer. Each later call on that connection would
    get the answer of the call before.
    """
    pyspark = sys.modules.get("pyspark")
    gateway = None if pyspark is None else pyspark.SparkContext._gateway
    connection = None if gateway is None else gateway._gateway_client.get_thread_connection()
    if connection is not None:
        connection.close()


def main() -> None:
    """Start a session for other processes."""
    with tempfile.TemporaryDirectory(prefix="spark-of-tests-") as folder:
        session = start(Path(folder))
        parameters = session.sparkContext._gateway.gateway_parameters
        sys.stdout.write(f"{parameters.port}\n{parameters.auth_token}\n")
        sys.stdout.flush()
        sys.stdin.read()
        session.stop()


if __name__ == "__main__":
    main()
