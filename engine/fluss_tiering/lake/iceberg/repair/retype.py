"""Writes files again whose columns have other physical types than Iceberg's spec says, with the same rows.

The new file takes the place of the old one and its data sequence number, in one transaction. The deletes of other
commits therefore apply to it as they did to the old one, also those of a round that commits in the meantime. Deletes by
position do not, since they name the old file, so that they are a conflict.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from py4j.java_gateway import JavaObject, JVMView

from fluss_tiering.lake.damaged_parquet import naming_damage, open_parquet, unreadable_file
from fluss_tiering.lake.iceberg.content_file import described_metrics
from fluss_tiering.lake.iceberg.java import iceberg_class
from fluss_tiering.lake.iceberg.metadata.leftovers import deleting_after_conflict
from fluss_tiering.lake.iceberg.metrics.collector import columns_with_nan, leaves_of
from fluss_tiering.lake.iceberg.parquet import OpenFile, ParquetFileWriter
from fluss_tiering.lake.iceberg.repair.live_files import Entry, Manifest
from fluss_tiering.lake.object_store import filesystem_of, path_of
from fluss_tiering.lake.protocol import FileMetrics


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file with the same rows as another one.

    Attributes:
        replaced: The location of the other file.
        location: The location of the file.
        size_bytes: The size of the file.
        metrics: Its metrics.
    """

    replaced: str
    location: str
    size_bytes: int
    metrics: FileMetrics = field(repr=False)


@dataclass(frozen=True, slots=True)
class FileRewriter:
    """Writes files again. It is pickled, and called on executors.

    Attributes:
        settings: The settings of the table's files.
    """

    settings: ParquetFileWriter

    def __call__(self, location: str) -> NewFile:
        """Write a file again, next to the old one.

        Raises:
            FlussTieringError: CORRUPT_DATA if the file is missing or damaged.
            OSError: If its store fails.
        """
        filesystem = filesystem_of(location, self.settings.io_properties)
        name = f"{location.removesuffix('.parquet')}-{uuid.uuid4()}.parquet"
        with (
            naming_damage(filesystem, location, lambda what: unreadable_file(location, what, "file")),
            filesystem.open_input_file(path_of(location)) as source,
        ):
            parquet = open_parquet(source)
            groups = range(parquet.metadata.num_row_groups)
            with_nan: set[str] = set()
            if any(pa.types.is_floating(leaf.kind) for leaf in leaves_of(parquet.schema_arrow)):
                with_nan.update(*(columns_with_nan(parquet.read_row_group(group)) for group in groups))
            file = OpenFile(name, parquet.schema_arrow, self.settings, filesystem, with_nan=with_nan)
            try:
                for group in groups:
                    file.write(_plain(parquet.read_row_group(group)))
                size, metrics = file.close()
            except BaseException:
                file.abandon()
                raise
        return NewFile(location, name, size, metrics)


def _plain(rows: pa.Table) -> pa.Table:
    return rows.replace_schema_metadata(None)


def replace_files(
    jvm: JVMView, table: JavaObject, base: int | None, manifests: Sequence[Manifest], files: Sequence[NewFile]
) -> None:
    """Commit new files in place of those that they replace, or change nothing. Errors are those of the JVM.

    The commit fails if somebody else has deleted rows of the old files by position since the base, and the new files
    are then deleted.

    Args:
        jvm: The JVM of the Spark session.
        table: Iceberg's table object.
        base: The snapshot whose manifests these are.
        manifests: The manifests, which list the old files.
        files: The new files.
    """
    new = {each.replaced: each for each in files}
    with deleting_after_conflict(table, [each.location for each in files]):
        # A transaction refreshes the table, whose present snapshot may then be a later one than the base.
        transaction = table.newTransaction()
        for sequence_number, group in _by_sequence_number(jvm, table, manifests, new).items():
            rewrite = transaction.newRewrite().validateFromSnapshot(base)
            for old, replacement in group:
                rewrite.deleteFile(old)
                if str(old.content()) == "DATA":
                    rewrite.addFile(replacement)
                else:
                    rewrite.addFile(replacement, sequence_number)
            rewrite.dataSequenceNumber(sequence_number)
            rewrite.commit()
        transaction.commitTransaction()


def _by_sequence_number(
    jvm: JVMView, table: JavaObject, manifests: Sequence[Manifest], new: Mapping[str, NewFile]
) -> dict[int, list[tuple[JavaObject, JavaObject]]]:
    """Return the old and the new file objects by the data sequence number, the oldest first."""
    found: dict[int, list[tuple[JavaObject, JavaObject]]] = {}
    for manifest in manifests:
        wanted = {entry.file.location: entry for entry in manifest.entries if entry.file.location in new}
        if wanted:
            for old, entry in _old_files(jvm, table, manifest, wanted):
                pair = old, _replacement(jvm, table, old, manifest, new[entry.file.location])
                found.setdefault(entry.sequence_number, []).append(pair)
    return dict(sorted(found.items()))


def _old_files(
    jvm: JVMView, table: JavaObject, manifest: Manifest, wanted: Mapping[str, Entry]
) -> list[tuple[JavaObject, Entry]]:
    files = iceberg_class(jvm, "ManifestFiles")
    read = files.readDeleteManifest if str(manifest.java.content()) == "DELETES" else files.read
    reader = read(manifest.java, table.io(), table.specs())
    try:
        iterator = reader.iterator()
        found = []
        while iterator.hasNext():
            file = iterator.next()
            entry = wanted.get(str(file.location()))
            if entry is not None:
                found.append((file, entry))
        return found
    finally:
        reader.close()


def _replacement(jvm: JVMView, table: JavaObject, old: JavaObject, manifest: Manifest, new: NewFile) -> JavaObject:
    parser = iceberg_class(jvm, "ContentFileParser")
    content = json.loads(parser.toJson(old, table.specs().get(manifest.java.partitionSpecId())))
    content.update({"file-path": new.location, "file-size-in-bytes": new.size_bytes, **described_metrics(new.metrics)})
    content.pop("first-row-id", None)
    node = iceberg_class(jvm, "util.JsonUtil").mapper().readTree(json.dumps(content))
    return parser.fromJson(node, table.specs())
