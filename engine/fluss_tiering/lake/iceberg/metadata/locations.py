"""Where the data files of an Iceberg table are placed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fluss_tiering.lake.iceberg.library import JavaTable, ask

_PROBES: Final = ((0, "a-name"), (1, "another-name"))
"""The bucket and the name of files that are never written."""


class FileLocations:
    """Asks Iceberg's location provider for the locations of files.

    Iceberg's default provider places a file in the folder of its partition. One call per partition is then enough,
    while a round may have files in a hundred thousand buckets.

    Args:
        spec_id: The id of the partition spec of the files. It need not be the table's default one.
        by_bucket: Whether its last field is the bucket.
        by_rows: Whether its fields follow from the rows. The driver does not know them, and the files of all partitions
            are in one folder.
    """

    def __init__(self, table: JavaTable, spec_id: int, *, by_bucket: bool = True, by_rows: bool = False) -> None:
        self._by_rows = by_rows
        self._table = table
        self._spec_id = spec_id
        self._by_bucket = by_bucket
        self._folders: dict[tuple[str, ...], str | None] = {}

    def location(self, bucket: int, name: str, partition_values: tuple[str, ...]) -> str:
        """Return the location of a file. Errors are those of the JVM."""
        if partition_values not in self._folders:
            self._folders[partition_values] = self._folder(partition_values)
        folder = self._folders[partition_values]
        return folder + self._end(bucket, name) if folder else self._asked([(bucket, name)], partition_values)[0]

    def _end(self, bucket: int, name: str) -> str:
        return f"{bucket}/{name}" if self._by_bucket else name

    def _folder(self, partition_values: tuple[str, ...]) -> str | None:
        """Return what comes before the bucket's number in each location; None if the names of files decide more."""
        places = self._asked(_PROBES, partition_values)
        suffix = self._end(*_PROBES[0])
        if not places[0].endswith(f"={suffix}" if self._by_bucket else f"/{suffix}"):
            return None
        folder = places[0].removesuffix(suffix)
        return folder if places == [folder + self._end(*probe) for probe in _PROBES] else None

    def _asked(self, files: Sequence[tuple[int, str]], partition_values: tuple[str, ...]) -> list[str]:
        listed = [(self._values(bucket, partition_values), name) for bucket, name in files]
        return list(ask(self._table, "locations", {"spec": self._spec_id, "files": listed}))

    def _values(self, bucket: int, partition_values: tuple[str, ...]) -> tuple[str, ...] | None:
        if self._by_rows:
            return None
        return (*partition_values, str(bucket)) if self._by_bucket else partition_values
