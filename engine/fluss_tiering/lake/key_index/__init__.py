"""The key index, which says where in a lake table the rows of primary keys are, without reading the table.

It is a cache. It lies in files beside the lake table and can be deleted at any time: what is missing is rebuilt from
the key columns of the data files. This package knows nothing of Iceberg but the UUID of a table and the locations of
its data files.
"""

from fluss_tiering.lake.key_index.hashes import Hashes, hash_keys
from fluss_tiering.lake.key_index.index import KeyIndex, Matches
from fluss_tiering.lake.key_index.merging import live_runs, merge_runs, runs_to_merge
from fluss_tiering.lake.key_index.place import Place, UnusableIndexError
from fluss_tiering.lake.key_index.run import Run
from fluss_tiering.lake.key_index.state import (
    QuietIndex,
    StoredState,
    quiet_indexes,
    read_state,
    remove_unreferenced,
    stored_states,
    write_state,
)
from fluss_tiering.lake.key_index.store import IndexStore
from fluss_tiering.lake.key_index.writing import Entries, PieceKeys, PieceKeysWriter, RunWriter, deleted_keys, write_run

__all__ = [
    "Entries",
    "Hashes",
    "IndexStore",
    "KeyIndex",
    "Matches",
    "PieceKeys",
    "PieceKeysWriter",
    "Place",
    "QuietIndex",
    "Run",
    "RunWriter",
    "StoredState",
    "UnusableIndexError",
    "deleted_keys",
    "hash_keys",
    "live_runs",
    "merge_runs",
    "quiet_indexes",
    "read_state",
    "remove_unreferenced",
    "runs_to_merge",
    "stored_states",
    "write_run",
    "write_state",
]
