"""A program that writes rows in small requests, and prints how many are acknowledged. It may be killed in between."""

from __future__ import annotations

import json
import sys

import pyarrow as pa

from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath, WriteKind


def main(target: str, path: str, kind: str, file: str, rows: str) -> None:
    """Write the rows of an Arrow file.

    Args:
        target: The address of the server.
        path: The table, as a JSON array of its database and its name.
        kind: The kind of the write.
        file: The file.
        rows: The number of rows of a request.
    """
    with pa.OSFile(file) as source:
        table = pa.ipc.open_file(source).read_all()
    batches = (table.slice(start, int(rows)) for start in range(0, table.num_rows, int(rows)))
    with TieringClient(target, timeout=60) as client:
        _say("begun")
        try:
            for count in client.write_rows(TablePath(*json.loads(path)), WriteKind(kind), batches):
                _say(str(count))
        except FlussTieringError as error:
            _say(f"{error.code.name} {error.message}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
