"""Gives files other bounds, without touching the files themselves.

A manifest that lists such a file is replaced by a copy in one commit of Iceberg's `RewriteManifests`. In the copy each
file keeps its sequence numbers and the snapshot that added it. The deletes of other commits therefore apply as before.
Removing and adding the file would give it a new sequence number, and a later expiry could delete it, since a manifest
would list it as removed.

The fence of a round does not see this commit, as it does not see compactions. If a round or a compaction replaces one
of the manifests at the same time, Iceberg refuses the commit.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence

from py4j.java_gateway import JavaObject, JVMView

from fluss_tiering.lake.iceberg.java import iceberg_class
from fluss_tiering.lake.iceberg.metadata.leftovers import deleting_after_conflict
from fluss_tiering.lake.iceberg.repair.check import WrongFile
from fluss_tiering.lake.iceberg.repair.live_files import Manifest

_LOWER, _UPPER = "lower-bounds", "upper-bounds"


def rewrite_bounds(jvm: JVMView, table: JavaObject, manifests: Sequence[Manifest], wrong: Sequence[WrongFile]) -> int:
    """Commit the right bounds of files, and return how many files got them.

    Errors are those of the JVM: a `ValidationException` or `CommitFailedException` if somebody else has replaced one of
    the manifests since they were read. Nothing is changed then.
    """
    by_location = {each.location: each for each in wrong if each.right_bounds}
    affected = [each for each in manifests if any(entry.file.location in by_location for entry in each.entries)]
    if not affected:
        return 0
    written: list[str] = []
    with deleting_after_conflict(table, written):
        update = table.rewriteManifests()
        for manifest in affected:
            copy = _copy(jvm, table, manifest, by_location)
            written.append(str(copy.path()))
            update.deleteManifest(manifest.java).addManifest(copy)
        update.commit()
    return sum(entry.file.location in by_location for each in affected for entry in each.entries)


def _copy(jvm: JVMView, table: JavaObject, manifest: Manifest, wrong: Mapping[str, WrongFile]) -> JavaObject:
    """Write a manifest with the same files, of which the wrong ones have other bounds."""
    files = iceberg_class(jvm, "ManifestFiles")
    specs = table.specs()
    spec = specs.get(manifest.java.partitionSpecId())
    operations = table.operations()
    version = operations.current().formatVersion()
    output = table.io().newOutputFile(operations.metadataFileLocation(f"{uuid.uuid4()}-m0.avro"))
    if str(manifest.java.content()) == "DELETES":
        reader = files.readDeleteManifest(manifest.java, table.io(), specs)
        writer = files.writeDeleteManifest(version, spec, output, None)
    else:
        reader = files.read(manifest.java, table.io(), specs)
        writer = files.write(version, spec, output, None)
    entries = {entry.file.location: entry for entry in manifest.entries}
    try:
        for file in _all(reader):
            location = str(file.location())
            entry = entries[location]
            right = wrong.get(location)
            writer.existing(
                file if right is None else _with_bounds(jvm, file, spec, specs, right),
                entry.snapshot_id,
                entry.sequence_number,
                entry.file_sequence_number,
            )
    finally:
        reader.close()
        writer.close()
    return writer.toManifestFile()


def _all(reader: JavaObject) -> Iterator[JavaObject]:
    iterator = reader.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _with_bounds(jvm: JVMView, file: JavaObject, spec: JavaObject, specs: JavaObject, right: WrongFile) -> JavaObject:
    parser = iceberg_class(jvm, "ContentFileParser")
    content = json.loads(parser.toJson(file, spec))
    for key, side in ((_LOWER, 0), (_UPPER, 1)):
        bounds = dict(zip(*(content.get(key, {}).get(part, ()) for part in ("keys", "values")), strict=True))
        for number, both in right.right_bounds.items():
            bound = both[side]
            bounds.pop(number, None)
            if bound is not None:
                bounds[number] = bound.hex().upper()
        content[key] = {"keys": list(bounds), "values": list(bounds.values())}
    node = iceberg_class(jvm, "util.JsonUtil").mapper().readTree(json.dumps(content))
    return parser.fromJson(node, specs)
