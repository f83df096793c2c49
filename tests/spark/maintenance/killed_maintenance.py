"""Maintenance that is killed once the second of its rewrites has written a file, before it commits.

killed_maintenance.py SERVER TABLE
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlparse

from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TablePath
from fluss_tiering.spark.maintenance import maintain
from fluss_tiering.spark.maintenance.plan import MaintenanceLimits
from fluss_tiering.spark.startup.session import own_session


def main() -> None:
    server, name = sys.argv[1:]
    with TieringClient(server) as client:
        (table,) = client.get_tables([TablePath.parse(name)])
        properties = table.lake_catalog_properties
        database = properties["uri"].removeprefix("jdbc:sqlite:").partition("?")[0]
        folder = Path(urlparse(properties["warehouse"]).path, *name.split("."))
        rewrite, calls = maintain.rewrite_data_files, []

        def killed(*arguments, **options):
            calls.append(arguments)
            if len(calls) == 2:
                # No commit gets through while somebody else has the catalog's database.
                catalog = sqlite3.connect(database, isolation_level=None)
                catalog.execute("BEGIN EXCLUSIVE")
                threading.Thread(target=_kill_at_a_new_file, args=(folder,), daemon=True).start()
            return rewrite(*arguments, **options)

        maintain.rewrite_data_files = killed
        with own_session("local[1]") as spark:
            limits = MaintenanceLimits(min_input_files=2, commit_bytes=1)
            maintain.maintain_table(client, spark, table, limits=limits)


def _kill_at_a_new_file(folder: Path) -> None:
    before = set(folder.rglob("*.parquet"))
    while set(folder.rglob("*.parquet")) == before:
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
