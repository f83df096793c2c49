"""The columns of position delete files, with the names and the ids that the Iceberg spec gives them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from fluss_tiering.lake.iceberg.field_ids import FIELD_ID

PATH_COLUMN: Final = "file_path"
PATH_ID: Final = 2147483546
POSITION_COLUMN: Final = "pos"
POSITION_ID: Final = 2147483545
SCHEMA: Final = pa.schema(
    [
        pa.field(PATH_COLUMN, pa.string(), nullable=False, metadata={FIELD_ID: str(PATH_ID)}),
        pa.field(POSITION_COLUMN, pa.int64(), nullable=False, metadata={FIELD_ID: str(POSITION_ID)}),
    ]
)
