"""Fluss's own Java client 1.0.0 for tests: it writes and reads tables of a cluster of either version as Fluss does."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Self

import java_programs
from fetch_fluss_jars import VERSIONS
from fluss_tiering.model.table import TablePath

_SOURCES: Final = Path(__file__).resolve().parent / "java"
_NO_TABLE: Final = TablePath("none", "none")
_CLOSE_S: Final = 30.0
_ANSWER_S: Final = 120.0
"""How long the client may take to answer. Its writes never end where a cluster has missed the table."""
_SHOWN_CHARACTERS: Final = 4000


class JavaClientError(Exception):
    """What Fluss's client refused, with all causes."""


@dataclass(frozen=True)
class LogRow:
    """A record of a log as the Java client reads it; the values are in the form of `plain`."""

    partition_id: int | None
    bucket: int
    offset: int
    time: int
    kind: str
    values: list


class FlussJavaClient:
    """A Java client in a process of its own, which `with` starts and ends.

    Rows are lists with a value for each column of the table, as `plain` returns them, or Python values.
    A process that does not answer in time, or whose answer nobody waited for, is replaced at once.

    Args:
        folder: A folder for the compiled program.
        bootstrap: The address of a cluster's server.
        settings: Further settings of the client, such as `client.writer.batch-size`.
    """

    def __init__(self, folder: Path, bootstrap: str, **settings: str) -> None:
        class_path = [folder / "classes", fetch_jar()]
        if not class_path[0].exists():
            java_programs.compile_into(class_path[0], sorted(_SOURCES.glob("*.java")), class_path)
        arguments = [f"bootstrap.servers={bootstrap}", *(f"{key}={value}" for key, value in settings.items())]
        jvm = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._command = java_programs.java_command("FlussJavaClient", arguments, class_path, jvm)
        self._errors = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - it is open as long as the client
        self._process = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._end(_CLOSE_S)
        self._errors.close()

    def create(
        self,
        path: TablePath,
        columns: Mapping[str, str],
        *,
        primary_key: Sequence[str] = (),
        bucket_keys: Sequence[str] = (),
        partition_keys: Sequence[str] = (),
        buckets: int = 1,
        aggregates: Mapping[str, str] | None = None,
        auto_increment: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Create a table, and its database if there is none; return `info`.

        Args:
            path: The path.
            columns: The type of each column, as `BIGINT NOT NULL`.
            primary_key: The columns of the primary key, with those of the partition.
            bucket_keys: The bucket keys; by default Fluss's.
            partition_keys: The partition keys.
            buckets: The number of buckets.
            aggregates: The aggregation function of columns of a table with the merge engine `aggregation`.
            auto_increment: The column that Fluss numbers.
            properties: The options of the table.
        """
        return self._ask(
            "create",
            path,
            columns=[
                {
                    "name": name,
                    "type": text,
                    "aggregate": (aggregates or {}).get(name),
                    "auto_increment": name == auto_increment,
                }
                for name, text in columns.items()
            ],
            primary_key=list(primary_key),
            bucket_keys=list(bucket_keys),
            partition_keys=list(partition_keys),
            buckets=buckets,
            properties=dict(properties or {}),
        )

    def drop(self, path: TablePath) -> None:
        """Drop a table."""
        self._ask("drop", path)

    def info(self, path: TablePath) -> dict[str, Any]:
        """Return `table_id`, `schema_id`, `buckets`, `columns` as [name, type] and `properties` of a table."""
        return self._ask("info", path)

    def create_partition(self, path: TablePath, **values: str) -> None:
        """Create a partition. Writers create partitions by themselves."""
        self._ask("create_partition", path, values=values)

    def add_column(self, path: TablePath, name: str, data_type: str) -> dict[str, Any]:
        """Add a column at the end; return `info`."""
        return self._ask("add_column", path, name=name, type=data_type)

    def append(self, path: TablePath, rows: Iterable[Sequence[Any]]) -> int:
        """Append rows to a log table, in one batch for each bucket if they fit; return their number."""
        return self._ask("append", path, rows=[plain(list(row)) for row in rows])

    def upsert(self, path: TablePath, rows: Iterable[Sequence[Any]], *, columns: Sequence[str] | None = None) -> int:
        """Upsert rows; return their number. `columns` are those of a partial update, the key among them."""
        return self._ask("upsert", path, rows=[plain(list(row)) for row in rows], columns=_listed(columns))

    def delete(self, path: TablePath, rows: Iterable[Sequence[Any]], *, columns: Sequence[str] | None = None) -> int:
        """Delete rows, of which only the key counts; return their number. `columns` are those that become null."""
        return self._ask("delete", path, rows=[plain(list(row)) for row in rows], columns=_listed(columns))

    def log(self, path: TablePath, *, columns: Sequence[str] | None = None) -> list[LogRow]:
        """Return the log from its beginning to its present end, ordered by bucket and offset.

        Raises:
            AssertionError: The client did not reach the end.
        """
        read = self._ask("log", path, columns=_listed(columns))
        assert read["complete"], f"Fluss's client did not reach the end of the log: {len(read['rows'])} rows"
        rows = [LogRow(**row) for row in read["rows"]]
        return sorted(rows, key=lambda row: (row.partition_id or -1, row.bucket, row.offset))

    def kv(self, path: TablePath, *, columns: Sequence[str] | None = None) -> list[list]:
        """Return the rows of a primary-key table by SCAN_KV, which Fluss has from 1.0 on."""
        return self._ask("kv", path, columns=_listed(columns))

    def allow(self, user: str, operation: str, resource_type: str, resource: str = "") -> None:
        """Give a user of SASL/PLAIN an ACL. Servers learn of it a moment later. The cluster needs no name."""
        acl = {"operation": operation, "resource_type": resource_type, "resource": resource}
        self._ask("allow", _NO_TABLE, user=user, **acl)

    def forbid(self, user: str, operation: str, resource_type: str, resource: str = "") -> None:
        """Take an ACL from a user. Servers learn of it a moment later."""
        acl = {"operation": operation, "resource_type": resource_type, "resource": resource}
        self._ask("forbid", _NO_TABLE, user=user, **acl)

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )

    def _end(self, seconds: float) -> None:
        """End the process by its input's end, and after `seconds` by a kill."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _ask(self, what: str, path: TablePath, **arguments: Any) -> Any:
        request = {"do": what, "path": [path.database, path.table], **arguments}
        answer = json.loads(self._answer(what, json.dumps(request, allow_nan=False)))
        if "error" in answer:
            raise JavaClientError(answer["error"])
        return answer["ok"]

    def _answer(self, what: str, request: str) -> str:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(_ANSWER_S, process.kill)
        late.start()
        line = ""
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(request + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
        finally:
            late.cancel()
            if not line:  # Also where the time of a test has ended: a later request must not get this one's answer.
                self._end(0)
                self._process = self._start()
        if not line:
            self._errors.seek(0)
            text = self._errors.read().decode(errors="replace")
            raise AssertionError(f"Fluss's client ended while it was asked to {what}:\n{text[-_SHOWN_CHARACTERS:]}")
        return line


def plain(value: Any) -> Any:
    """Return a Python value of a column in the form in which the Java client takes and prints it.

    Timestamps with a zone are in UTC. A map is a list of pairs, a row a list of its fields.
    """
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dt.datetime():
            return (value.astimezone(dt.UTC) if value.tzinfo else value).isoformat(timespec="microseconds")
        case dt.time():
            return value.isoformat(timespec="microseconds")
        case dt.date():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case bytes():
            return value.hex()
        case dict():
            return [plain(each) for each in value.values()]
        case list() | tuple():
            return [plain(each) for each in value]
        case _:
            return value


def fetch_jar() -> Path:
    """Return the jar of the client, which Maven fetches once."""
    return VERSIONS["1.0"].fetch_client()


def _listed(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(names)
