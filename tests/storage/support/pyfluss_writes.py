"""Writes tables with Fluss's own Python client: (path, Arrow IPC stream or rows) from standard input, pickled.

A program of its own, since that client may hang or end its process. Arrow streams are appended; lists of rows, each a
list of Python values, are appended or upserted one by one.
"""

import asyncio
import os
import pickle
import sys

import fluss
import pyarrow as pa


async def main() -> None:
    config = fluss.Config({"bootstrap.servers": sys.argv[1]})
    async with await fluss.FlussConnection.create(config) as connection:
        for path, rows in pickle.load(sys.stdin.buffer):
            table = await connection.get_table(fluss.TablePath(*path.split(".")))
            if isinstance(rows, bytes):
                writer = table.new_append().create_writer()
                for batch in pa.ipc.open_stream(rows):
                    writer.write_arrow_batch(batch)
            elif table.has_primary_key():
                writer = table.new_upsert().create_writer()
                for row in rows:
                    writer.upsert(row)
            else:
                writer = table.new_append().create_writer()
                for row in rows:
                    writer.append(row)
            await writer.flush()
            sys.stdout.write(f"{path}\n")
            sys.stdout.flush()
    # It may abort while the interpreter ends, after all was flushed.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
