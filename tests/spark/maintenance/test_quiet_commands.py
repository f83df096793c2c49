"""Maintenance that succeeds logs no stack trace of Java: people would take it for a failure."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from maintenance_support import rounds
from spark_support import Tiering, driver_environment

_TRACE = re.compile(r"^.*(?:Exception\b.*|^\s+at [\w.$/]+\(.*)$", re.MULTILINE)
_COMMANDS = """
import logging, sys
from fluss_tiering.model.table import TablePath
from fluss_tiering.spark.audit.clean import clean_table
from fluss_tiering.spark.maintenance_application import run
from fluss_tiering.spark.maintenance_options import CompactOptions, ExpireOptions, MaintainOptions
from fluss_tiering.spark.startup.session import own_session
from fluss_tiering.client import TieringClient
from datetime import timedelta

logging.basicConfig(level=logging.INFO)
server, *names = sys.argv[1:]
tables = tuple(map(TablePath.parse, names))
with own_session("local[1]") as spark, TieringClient(server) as client:
    assert run(CompactOptions(server, tables, min_input_files=2), spark) == {}
    assert run(ExpireOptions(server, tables, older_than="0s"), spark) == {}
    for table in client.get_tables(tables):
        assert clean_table(spark, table, grace=timedelta(days=1), delete=True).error is None
    assert run(MaintainOptions(server, tables, min_input_files=2), spark) == {}
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.system
def test_commands_that_succeed_log_no_stack_trace(tiering: Tiering):
    tables = [tiering.table(), tiering.table(primary_key=False)]
    for table in tables:
        rounds(tiering, table, 2)
    ran = subprocess.run(
        [sys.executable, "-c", _COMMANDS, tiering.target, *(str(table.path) for table in tables)],
        env=driver_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "compacted: 2 data files were replaced by 1" in ran.stderr
    # Spark's own messages are among them.
    assert "WARN" in ran.stderr
    assert _TRACE.findall(ran.stderr) == []
