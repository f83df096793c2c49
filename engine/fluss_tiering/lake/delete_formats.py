"""The names and numbers that the specs of Iceberg and Puffin give to deletes by position.

They stand apart from what reads and writes such files in rounds, since a server without Spark moves the files, too.
"""

from __future__ import annotations

from typing import Final

PATH_COLUMN: Final = "file_path"
PATH_ID: Final = 2147483546
"""The id of the column with the paths of data files in position delete files."""
PUFFIN_MAGIC: Final = b"PFA1"
REFERENCED_DATA_FILE: Final = "referenced-data-file"
"""The property of a deletion vector that names its data file."""
