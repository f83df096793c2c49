"""The layouts of the values of a primary-key table in RocksDB (Fluss's `KvValueLayout`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_SCHEMA_ID_BYTES: Final = 2
_TAG_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class ValueLayout:
    """Where the parts of a value are. The schema id is a little-endian i16, and the compacted row follows it.

    Attributes:
        schema_id_at: The position of the schema id. A tag may be in front of it.
    """

    schema_id_at: int

    @property
    def row_at(self) -> int:
        """The position of the compacted row."""
        return self.schema_id_at + _SCHEMA_ID_BYTES


PLAIN: Final = ValueLayout(0)
"""A value without a tag. Servers send values in this layout to clients, however they store them."""
TAGGED: Final = ValueLayout(_TAG_BYTES)
"""A value after its tag, a big-endian i64. Fluss 1.0 drops rows of tables with `table.kv.ttl` by it."""

VALUE_LAYOUTS: Final[Mapping[str, ValueLayout]] = {"1": PLAIN, "2": TAGGED}
"""Version (the table option `table.kv.value-layout-version`) -> layout."""
