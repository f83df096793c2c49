"""Arrow fields with Iceberg's field ids, so that Parquet files have these ids, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from fluss_tiering.model.data_type import ELEMENT, KEY, VALUE

_FIELD_ID: Final = "PARQUET:field_id"


def with_field_ids(field: Mapping[str, Any], kind: pa.DataType) -> pa.Field:
    """Return an Arrow field of this type, with all ids of a field in Iceberg's JSON."""
    return _field(field["name"], field["id"], field["type"], kind, required=field["required"])


def _field(name: str, number: int, iceberg: str | Mapping[str, Any], kind: pa.DataType, *, required: bool) -> pa.Field:
    return pa.field(name, _type(iceberg, kind), not required, {_FIELD_ID: str(number)})


def _type(iceberg: str | Mapping[str, Any], kind: pa.DataType) -> pa.DataType:
    if isinstance(iceberg, str):
        return kind
    if iceberg["type"] == "struct":
        return pa.struct([with_field_ids(part, kind.field(part["name"]).type) for part in iceberg["fields"]])
    if iceberg["type"] == "list":
        required = iceberg["element-required"]
        return pa.list_(_field(ELEMENT, iceberg["element-id"], iceberg["element"], kind.value_type, required=required))
    return pa.map_(
        _field(KEY, iceberg["key-id"], iceberg["key"], kind.key_type, required=True),
        _field(VALUE, iceberg["value-id"], iceberg["value"], kind.item_type, required=iceberg["value-required"]),
    )
