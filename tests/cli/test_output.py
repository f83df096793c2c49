"""How wide tables are where no terminal tells."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
from fluss_tiering.cli.output import Heading, print_table
titles = ("Table", "Outcome", "Epoch", "Rows", "Bytes", "Files", "Lake snapshot", "Seconds")
cells = ("warehouse.customer_orders", "Tiered", "12", "1,000,000", "12.5 MiB", "16", "8123456789012345678", "12.3")
print_table(None, [Heading(title, numeric=number > 1) for number, title in enumerate(titles)], [cells], "nothing")
"""


@pytest.mark.parametrize(("columns", "whole"), [(None, True), ("80", False)])
def test_a_piped_table_has_room_for_its_words(columns, whole):
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment if columns is None else {**environment, "COLUMNS": columns},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert (" Tiered " in printed) is whole
