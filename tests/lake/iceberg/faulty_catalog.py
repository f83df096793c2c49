"""A lake table in a real REST catalog, whose commits a proxy answers wrongly."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlparse

import pyarrow as pa
from lake_support import Lake
from table_support import commit_of

import judges
from fluss_tiering.lake.files import LakeFile
from fluss_tiering.lake.iceberg.deletes import (
    DeletePlace,
    PositionDeletes,
    live_data_files,
    present_deletes,
    write_position_deletes,
    write_vectors,
)
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.model.table import TableInfo, TablePath
from http_proxy import CutOff, Proxy

_COMMIT: Final = re.compile(r"/v1/.*namespaces/[^/]+/tables/[^/]+$")

Answer = tuple[int, dict[str, str], bytes]


def error(status: int, kind: str, message: str = "planted") -> Callable[[bytes], Answer]:
    """Return an answer of a catalog with an error."""
    said = {"error": {"message": message, "type": kind, "code": status}}
    return lambda before: (status, {"Content-Type": "application/json", "Retry-After": "0"}, json.dumps(said).encode())


def _reset(before: bytes) -> Answer:
    raise CutOff


def _truncated(before: bytes) -> Answer:
    raise CutOff(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n" + before[:100])


FAULTS: Final[Mapping[str, Callable[[bytes], Answer]]] = {
    "400 CommitStateUnknown": error(400, "CommitStateUnknownException"),
    "400 conflict": error(400, "ValidationException", "Cannot add snapshot with sequence number 1"),
    "401": error(401, "NotAuthorizedException"),
    "404": error(404, "NoSuchTableException"),
    "409": error(409, "CommitFailedException"),
    "500": error(500, "InternalServerError"),
    "502": error(502, "BadGateway"),
    "503": error(503, "SlowDownException"),
    "504": error(504, "GatewayTimeout"),
    "200 without effect": lambda before: (200, {"Content-Type": "application/json"}, before),
    "204": lambda before: (204, {}, b""),
    "reset": _reset,
    "truncated": _truncated,
}
"""How the proxy answers a commit, given the table as it was before."""
SENT_AGAIN: Final = frozenset({"409", "503"})
"""After these answers the commit is sent again, by the client or by us."""


class FaultyCatalog(Proxy):
    """A REST catalog that answers the next commit with a fault.

    Attributes:
        fault: The fault; None for right answers.
        lands: Whether the commit is done before it is answered.
        meanwhile: What others do before the answer.
        late: The commits that are still under way: each does one.
        unreachable: Whether every request after the fault is refused.
        stale: Whether a copy that is behind says after the fault what the table is.
    """

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.fault: Callable[[bytes], Answer] | None = None
        self.lands = False
        self.meanwhile: Callable[[], object] = lambda: None
        self.late: list[Callable[[], Answer]] = []
        self.unreachable = self.stale = False
        self._last = self._kept = b""

    def keep(self) -> None:
        """Keep what the catalog says of the table now, with which it answers later while `stale` is set."""
        self._kept = self._last

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Any:
        fault = self.fault
        if method != "POST" or fault is None or not _COMMIT.match(path):
            if self.unreachable and fault is None:
                return FAULTS["401"](b"")
            answer = super().handle(method, path, headers, body)
            if method == "GET" and _COMMIT.match(path.partition("?")[0]):
                if self.stale and fault is None:
                    return 200, {"Content-Type": "application/json"}, self._kept
                self._last = answer[2]
            return answer
        self.fault = None
        before = self.forward("GET", path, {k: v for k, v in headers.items() if not k.startswith("Content-")}, b"")[2]
        if self.lands:
            status, _, _ = self.forward(method, path, headers, body)
            assert status == 200
        else:
            self.late.append(lambda: self.forward(method, path, headers, body))
        self.meanwhile()
        return fault(before)


def row(key: int, text: str = "b") -> dict[str, Any]:
    return {"k": key, "v": text, "d": 1}


@dataclass
class FaultyLake(Lake):
    """A lake table in such a catalog, beside a model of its rows.

    Attributes:
        kind: "log", "equality", "position" or "vector".
        catalog: The catalog's properties.
        model: The keys of the rows, sorted.
        pending: The keys after the last round, whether it has landed or not.
    """

    kind: str = "log"
    catalog: Mapping[str, str] = field(default_factory=dict)
    model: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)

    @property
    def table(self) -> TableInfo:
        path = TablePath("db", self.name)
        return replace(super().table, path=path, lake_catalog_properties={**self.catalog, "name": self.name})

    @property
    def metadata(self) -> str:
        return str(self.open().java_table.operations().current().metadataFileLocation())

    def round(self) -> None:
        """Commit what a round does: two new keys, and the delete of an older one. `pending` are the keys after it."""
        lake = self.open()
        new = self.pending[-1] + 1 if self.pending else 1
        gone = self.model[len(self.model) // 2] if self.model and self.kind != "log" else None
        by_key = [self.batch([row(gone)])] if self.kind == "equality" and gone is not None else []
        files = list(self.write(lake, [self.batch([row(new)]), self.batch([row(new + 1, "y" * 5000)])], by_key))
        if self.kind in ("position", "vector") and gone is not None:
            files += self._deletes_by_position(lake, gone)
        self.pending = [*(key for key in self.model if key != gone), new, new + 1]
        lake.commit([files], commit_of(new))
        self.model = self.pending

    def _deletes_by_position(self, lake: IcebergTable, key: int) -> Sequence[LakeFile]:
        found = self.spark.sql(f"SELECT _file, _pos FROM {self.name}.db.{self.name} WHERE k = {key}").collect()
        ((location, position),) = found
        live = live_data_files(lake.java_table, lake.base())
        (deletes,) = (file.deletes for file in live if file.location == location)
        place = DeletePlace(lake.file_writer(), 0, lake.piece_location(0, str(uuid.uuid4())), 0, ())
        gone = PositionDeletes([location], pa.array([0], pa.int32()), pa.array([position], pa.int64()))
        if self.kind == "position":
            return write_position_deletes(place, gone, None)
        return write_vectors(place, gone, present_deletes(place, {location: deletes}))

    def keys(self, judge: str) -> list[int]:
        """Return the keys of the rows that a judge finds."""
        rows = judges.read(judge, self.metadata, columns=["k"], spark=self.spark)
        return sorted(rows.column("k").to_pylist())

    def unneeded_files(self) -> set[str]:
        """Return the names of the data files and manifests in the table's folder that no snapshot refers to."""
        folder, table = Path(urlparse(self.open().location()).path), f"{self.name}.db.{self.name}"
        listings = {"all_files": "file_path", "all_manifests": "path", "snapshots": "manifest_list"}
        needed = {
            row[0].rpartition("/")[2]
            for listing, column in listings.items()
            for row in self.spark.sql(f"SELECT {column} FROM {table}.{listing}").collect()
        }
        return {path.name for kind in ("*.avro", "*.parquet", "*.puffin") for path in folder.rglob(kind)} - needed
