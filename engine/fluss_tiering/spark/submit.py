"""What a submit of an application needs: its file, its arguments and its Spark settings, here or for another machine.

This module imports neither pyspark nor pyarrow: an Airflow task and the command line need neither to build a submit.
"""

from __future__ import annotations

import os
import pwd
import shutil
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from fluss_tiering.model.submit_request import SubmitRequest
from fluss_tiering.spark.command_line import arguments_of
from fluss_tiering.spark.maintenance_options import MaintenanceOptions
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.spark.versions import packages, spark_version
from fluss_tiering.version import __version__

APPLICATION: Final = Path(__file__).with_name("application.py")
"""The file that `spark-submit` runs to tier tables."""

MAINTENANCE_APPLICATION: Final = Path(__file__).with_name("maintenance_application.py")
"""The file that `spark-submit` runs to compact, expire or verify lake tables."""

JARS_VARIABLE: Final = "FLUSS_TIERING_SPARK_JARS"
"""The environment variable with comma-separated local jars, for hosts that should not download packages."""

ARCHIVE: Final = f"fluss_tiering-{__version__}.zip"
"""The name of the archive of this package for `--py-files`. The applications are beside it."""
PACKAGE: Final = Path(__file__).resolve().parents[1]
"""The folder of this package."""

_PACKED: Final = frozenset({".py", ".typed", ".jar"})
ICEBERG_EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def application_arguments(options: TierOptions) -> list[str]:
    """Return the application's command line, which `options.parse_arguments` reads as the same options.

    Spark's master is not part of it, since it is an argument of `spark-submit` itself.
    """
    return arguments_of(options)


def maintenance_arguments(options: MaintenanceOptions) -> list[str]:
    """Return the maintenance application's command line, which its `parse_arguments` reads as the same options."""
    return [options.command, *arguments_of(options)]


def spark_conf(
    environment: Mapping[str, str] = os.environ, *, driver_is_here: bool = True, version: str | None = None
) -> dict[str, str]:
    """Return the Spark settings that the application needs. A setting that a user makes later replaces them.

    Args:
        environment: The variables, of which `JARS_VARIABLE` names local jars.
        driver_is_here: Whether the driver runs on this machine. One on a cluster has another Python, and cannot use a
            catalog in a SQLite file.
        version: The version of Spark, as "3.5"; None for that of the pyspark that is installed.

    Raises:
        FlussTieringError: INVALID_REQUEST if the version of Spark is not supported.
    """
    conf = _conf_of(version or spark_version())
    if driver_is_here:
        # Workers otherwise run the first python3 on PATH, which may not have this package.
        conf["spark.pyspark.python"] = environment.get("PYSPARK_PYTHON", sys.executable)
    if jars := environment.get(JARS_VARIABLE):
        return {**conf, "spark.jars": jars}
    iceberg, *others = packages(version)
    return {**conf, "spark.jars.packages": ",".join([iceberg, *others] if driver_is_here else [iceberg])}


def _conf_of(version: str) -> dict[str, str]:
    """Return the settings that the application needs on any machine with this version of Spark."""
    conf = {
        # The long stage of one table must not delay the other tables of the application.
        "spark.scheduler.mode": "FAIR",
        "spark.ui.showConsoleProgress": "false",
        # Rows of a damaged file must not be copied into sound ones. Iceberg takes it for files that Hadoop opens.
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    }
    if version == "3.5":
        # Later versions of Spark know CALL without it.
        conf["spark.sql.extensions"] = ICEBERG_EXTENSIONS
    return conf


def submit_request(
    application: Path, arguments: Sequence[str], *, package: str, version: str | None = None
) -> SubmitRequest:
    """Return what a driver on another machine runs. It has nothing of this machine.

    Args:
        application: `APPLICATION` or `MAINTENANCE_APPLICATION`.
        package: The address of the folder that `write_package` has filled.
        version: The version of Spark there, as "3.5"; None for that of this machine.

    Raises:
        FlussTieringError: INVALID_REQUEST if the version of Spark is not supported.
    """
    version = version or spark_version()
    iceberg, *_ = packages(version)
    folder = package.rstrip("/")
    return SubmitRequest(
        main_file=f"{folder}/{application.name}",
        py_files=(f"{folder}/{ARCHIVE}",),
        args=tuple(arguments),
        conf=_conf_of(version),
        packages=(iceberg,),
    )


def missing_packages(environment: Mapping[str, str] = os.environ, home: Path | None = None) -> bool:
    """Return whether the next start of Spark downloads packages: a jar that it needs is in no cache of Ivy yet.

    Args:
        environment: The variables, of which `JARS_VARIABLE` names local jars.
        home: The folder with the caches; None for the home folder of this user, as Java finds it.
    """
    names = spark_conf(environment).get("spark.jars.packages", "").split(",")
    jars = [
        f"{group}_{artifact}-{version}.jar" for group, artifact, version in (each.split(":") for each in names if each)
    ]
    # Spark 4 names the folder after the version of Ivy.
    caches = list((home or _home_of_java()).glob(".ivy2*/jars"))
    return not all(any((cache / jar).is_file() for cache in caches) for jar in jars)


def _home_of_java() -> Path:
    """Return what the JVM takes for the user's home: it looks into the password database, and not at HOME."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # containers may run as a user without a name
        return Path.home()


def conf_arguments(conf: Mapping[str, str]) -> list[str]:
    """Return settings as arguments of `spark-submit`, `spark-sql` and `pyspark`."""
    return [text for key, value in conf.items() for text in ("--conf", f"{key}={value}")]


def make_archive(folder: Path, name: str = "fluss_tiering.zip") -> Path:
    """Make an archive of this package for `--py-files` in the folder, and return its path."""
    path = folder / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*")):
            if file.suffix in _PACKED:
                archive.write(file, file.relative_to(PACKAGE.parent))
        source = PACKAGE.with_name("pyspark_fluss.py")
        if source.is_file():
            archive.write(source, source.name)
    return path


def write_package(folder: Path) -> list[Path]:
    """Write what drivers elsewhere run into a folder: the applications, and the archive that they import."""
    copies = [Path(shutil.copy(source, folder)) for source in (APPLICATION, MAINTENANCE_APPLICATION)]
    return [*copies, make_archive(folder, ARCHIVE)]
