"""The build hook: a wheel or a source archive is built only with the jar of the Spark catalog in it."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# By its path, since a build frontend need not have this folder on its path of modules.
catalog_jar = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("catalog_jar.py"))))


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """End the build with the error's message instead of a traceback."""
    try:
        yield
    except catalog_jar.JarError as error:
        sys.exit(f"error: no package of fluss-tiering was built: {error}")


class CatalogJarHook(BuildHookInterface):
    """Compiles the jar when it is not there, or when it was made from other sources."""

    def dependencies(self) -> list[str]:
        """Return what the build needs: a pyspark, for its jars."""
        if catalog_jar.is_current():
            return []
        with errors_in_one_line():
            # Before pyspark is downloaded, which is large.
            catalog_jar.compiler()
        if catalog_jar.JARS_VARIABLE in os.environ:
            return []
        return [catalog_jar.PYSPARK]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make sure that the jar is there before files are collected."""
        del version, build_data
        if not catalog_jar.is_current():
            with errors_in_one_line():
                catalog_jar.build()
