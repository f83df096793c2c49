"""Looks rows up with Fluss's own Python client: keys from standard input, rows to standard output, both pickled.

A program of its own, since that client may hang or end its process.
"""

import asyncio
import pickle
import sys

import fluss


async def main() -> None:
    bootstrap, table = sys.argv[1:]
    async with await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": bootstrap})) as connection:
        wanted = await connection.get_table(fluss.TablePath(*table.split(".")))
        lookuper = wanted.new_lookup().create_lookuper()
        found = [await lookuper.lookup(key) for key in pickle.load(sys.stdin.buffer)]
        pickle.dump(found, sys.stdout.buffer)
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
