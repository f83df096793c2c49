"""Deletes by position: files that say at which positions of which data files rows are deleted.

The driver lists a snapshot's data files with `live_data_files`. Executors write deletes columnar, from Arrow arrays.
The format version of the lake table decides their form: `write_position_deletes` in version 2; `present_deletes` and
`write_vectors` in version 3, in which a data file has one deletion vector that grows. The files are committed as all
others. The commit refuses them if a data file that they name is not live any more.
"""

from fluss_tiering.lake.iceberg.deletes.place import DeletePlace
from fluss_tiering.lake.iceberg.deletes.planned_files import live_data_files
from fluss_tiering.lake.iceberg.deletes.position_files import write_position_deletes
from fluss_tiering.lake.iceberg.deletes.positions import PositionDeletes
from fluss_tiering.lake.iceberg.deletes.present import PresentDeletes, can_be_read, is_shared, present_deletes
from fluss_tiering.lake.iceberg.deletes.vectors import FIRST_WITH_VECTORS, write_vectors

__all__ = [
    "FIRST_WITH_VECTORS",
    "DeletePlace",
    "PositionDeletes",
    "PresentDeletes",
    "can_be_read",
    "is_shared",
    "live_data_files",
    "present_deletes",
    "write_position_deletes",
    "write_vectors",
]
