"""Arrow fields with Iceberg's field ids, so that Parquet files have these ids, too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from fluss_tiering.model.data_type import ELEMENT, KEY, VALUE

FIELD_ID: Final = "PARQUET:field_id"
_DECIMAL: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")


def with_field_ids(field: Mapping[str, Any], kind: pa.DataType) -> pa.Field:
    """Return an Arrow field with all ids of a field in Iceberg's JSON.

    Args:
        field: The field. Structs in it may have further fields, in any order.
        kind: The type of the values. The field has this type, or a wider one where Iceberg's is wider.
    """
    return _field(field["name"], field["id"], field["type"], kind, required=field["required"])


def id_of(field: pa.Field) -> bytes | None:
    """Return the id of an Arrow field; None if it has none."""
    found: bytes | None = (field.metadata or {}).get(FIELD_ID.encode())
    return found


def all_ids(fields: Iterable[pa.Field]) -> frozenset[str]:
    """Return the ids of Arrow fields and of everything in them."""
    found: set[str] = set()
    for field in fields:
        number = id_of(field)
        if number is not None:
            found.add(number.decode())
        found |= all_ids(parts_of(field.type))
    return frozenset(found)


def all_ids_of_json(fields: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the ids of fields in Iceberg's JSON and of everything in them."""
    found: set[str] = set()
    for field in fields:
        found |= {str(field["id"]), *_ids_in(field["type"])}
    return frozenset(found)


def _ids_in(iceberg: str | Mapping[str, Any]) -> frozenset[str]:
    if isinstance(iceberg, str):
        return frozenset()
    if iceberg["type"] == "struct":
        return all_ids_of_json(iceberg["fields"])
    parts = ("element",) if iceberg["type"] == "list" else ("key", "value")
    return all_ids_of_json({"id": iceberg[f"{part}-id"], "type": iceberg[part]} for part in parts)


def parts_of(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields of a nested type; none of another one."""
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(number) for number in range(kind.num_fields)]


def _field(name: str, number: int, iceberg: str | Mapping[str, Any], kind: pa.DataType, *, required: bool) -> pa.Field:
    return pa.field(name, _type(iceberg, kind), not required, {FIELD_ID: str(number)})


def _type(iceberg: str | Mapping[str, Any], kind: pa.DataType) -> pa.DataType:
    if isinstance(iceberg, str):
        return _widened(iceberg, kind)
    if iceberg["type"] == "struct":
        parts = {part["name"]: part for part in iceberg["fields"]}
        return pa.struct([with_field_ids(parts[part.name], part.type) for part in kind])
    if iceberg["type"] == "list":
        required = iceberg["element-required"]
        return pa.list_(_field(ELEMENT, iceberg["element-id"], iceberg["element"], kind.value_type, required=required))
    return pa.map_(
        _field(KEY, iceberg["key-id"], iceberg["key"], kind.key_type, required=True),
        _field(VALUE, iceberg["value-id"], iceberg["value"], kind.item_type, required=iceberg["value-required"]),
    )


def _widened(iceberg: str, kind: pa.DataType) -> pa.DataType:
    if iceberg == "long" and pa.types.is_int32(kind):
        return pa.int64()
    if iceberg == "double" and pa.types.is_float32(kind):
        return pa.float64()
    decimal = _DECIMAL.fullmatch(iceberg)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal and pa.types.is_decimal(kind) else kind
