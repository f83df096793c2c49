"""Looks rows of tables up with Fluss's own Python client: keys by table from standard input, rows to standard output.

Both are pickled. It is a program of its own, since that client may hang or end its process.
"""

import asyncio
import pickle
import sys

import fluss


async def main() -> None:
    (bootstrap,) = sys.argv[1:]
    found = []
    async with await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": bootstrap})) as connection:
        for table, keys in pickle.load(sys.stdin.buffer):
            wanted = await connection.get_table(fluss.TablePath(*table.split(".")))
            lookuper = wanted.new_lookup().create_lookuper()
            found.append([await lookuper.lookup(key) for key in keys])
        pickle.dump(found, sys.stdout.buffer)
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
