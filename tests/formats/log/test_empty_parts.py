"""Buffers without bytes and lists of which there are none, as Arrow's Java library and a Fluss server write them."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from cases import cases
from fluss_tiering.formats.ipc import child_of_header
from fluss_tiering.formats.log.batch import encode_log_batch, read_header
from fluss_tiering.formats.log.decoding import decode_log_batch, decode_log_batches
from fluss_tiering.formats.log.java_batches import with_offsets, without_empty_frames
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("texts", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("row", pa.struct([("inner", pa.list_(pa.list_(pa.binary())))])),
    ]
)
EMPTY = {"id": 1, "name": "", "texts": [], "counts": [], "row": {"inner": []}}
NULLS = {"id": 2, "name": None, "texts": None, "counts": None, "row": None}
FULL = {"id": 3, "name": "a", "texts": ["b", None], "counts": [("k", 1)], "row": {"inner": [[b"c"], None]}}


def message(*rows: dict[str, Any], compression: str | None = "lz4") -> pa.Buffer:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as stream:
        stream.write_batch(pa.RecordBatch.from_pylist(list(rows), SCHEMA))
    content = sink.getvalue()
    reader = pa.ipc.MessageReader.open_stream(content)
    begin = len(reader.read_next_message().serialize())
    return content.slice(begin, len(reader.read_next_message().serialize()))


def as_java_writes(written: pa.Buffer) -> pa.Buffer:
    """Let each buffer without bytes have a length of 0 before data that it does not have."""
    content = bytes(written)
    mark, size = struct.unpack_from("<II", content)
    metadata, body = bytearray(content[8 : 8 + size]), content[8 + size :]
    buffers = child_of_header(metadata, 2)
    assert buffers is not None
    (count,) = struct.unpack_from("<I", metadata, buffers)
    empty = 0
    for position in range(buffers + 4, buffers + 4 + count * 16, 16):
        _, length = struct.unpack_from("<qq", metadata, position)
        if length == 0:
            struct.pack_into("<qq", metadata, position, len(body), 8)
            body += bytes(8)
            empty += 1
    assert empty
    # The length of the body stands in the table of the message itself, as its fourth field.
    table = struct.unpack_from("<I", metadata, 0)[0]
    fields = table - struct.unpack_from("<i", metadata, table)[0]
    struct.pack_into("<q", metadata, table + struct.unpack_from("<H", metadata, fields + 10)[0], len(body))
    return pa.py_buffer(struct.pack("<II", mark, size) + metadata + body)


def log_batch_of_cpp(base_offset: int, *rows: dict[str, Any]) -> bytes:
    records = pa.RecordBatch.from_pylist(list(rows), SCHEMA)
    return encode_log_batch(base_offset, 0, records, schema_id=1, change_types=None, compression="LZ4_FRAME")


def log_batch(base_offset: int, *rows: dict[str, Any]) -> bytes:
    encoded = log_batch_of_cpp(base_offset, *rows)
    header = read_header(memoryview(encoded), 0)
    assert header is not None
    changed = bytearray(encoded[: header.records_start] + bytes(as_java_writes(message(*rows))))
    # The length in the header counts from the field behind it.
    struct.pack_into("<i", changed, 8, len(changed) - 12)
    return bytes(changed)


@cases("rows", [[EMPTY], [NULLS], [EMPTY, NULLS], [NULLS] * 100])
def test_a_message_of_java_is_read(rows: list[dict[str, Any]]) -> None:
    written = as_java_writes(message(*rows))
    # If this is read one day, Arrow has been mended, and nothing is needed here any more.
    with pytest.raises(OSError, match="less than one frame"):
        pa.ipc.read_record_batch(written, SCHEMA)
    mended = without_empty_frames(written)
    assert mended is not None
    records = pa.ipc.read_record_batch(mended, SCHEMA)
    records.validate(full=True)
    assert records.to_pylist() == rows
    assert without_empty_frames(mended) is None


@pytest.mark.parametrize("compression", ["lz4", "zstd", None])
def test_a_message_without_such_buffers_is_left_as_it_is(compression: str | None) -> None:
    assert without_empty_frames(message(FULL, compression=compression)) is None


def test_zeros_that_are_data_are_left_as_they_are() -> None:
    zero = pa.record_batch([pa.array([0], pa.int64())], ["id"])
    assert without_empty_frames(zero.serialize()) is None


@cases("size", [0, 3, 8, 40, 200])
def test_a_message_that_is_cut_off_is_none(size: int) -> None:
    assert without_empty_frames(as_java_writes(message(EMPTY)).slice(0, size)) is None


@cases("included", [None, [0], [1, 2], [3, 4], [2, 3, 4]])
def test_batches_with_and_without_such_buffers_are_read(included: list[int] | None) -> None:
    parts = [[FULL, FULL], [EMPTY], [FULL, NULLS], [NULLS, EMPTY]]
    log, batches, expected = b"", [], []
    for number, rows in enumerate(parts):
        batch = log_batch_of_cpp(2 * number, *rows) if FULL in rows else log_batch(2 * number, *rows)
        header = read_header(memoryview(batch), 0)
        assert header is not None
        batches.append((len(log), header))
        log += batch
        names = SCHEMA.names if included is None else [SCHEMA.names[index] for index in included]
        expected.append([{name: row[name] for name in names} for row in rows])
    read = decode_log_batches(pa.py_buffer(log), batches, SCHEMA, included=included, verify_crc=False)
    assert [batch.records.to_pylist() for batch in read] == expected


def test_damage_is_told_as_before() -> None:
    damaged = bytearray(log_batch(0, *[EMPTY] * 100))
    frame = damaged.index(bytes.fromhex("04224d18"))
    damaged[frame + 4 : frame + 12] = b"\xff" * 8
    with pytest.raises(FlussTieringError) as refused:
        decode_log_batch(bytes(damaged), 0, SCHEMA, verify_crc=False)
    assert refused.value.code is ErrorCode.CORRUPT_DATA


WORD = 0x7000_0001
BEHIND = pa.py_buffer(WORD.to_bytes(4, "little") * 64)
"""What lies behind the place of the offsets that are not there: where they would point to, there is nothing."""
NOTHING = BEHIND.slice(0, 0)


def without_offsets(kind: pa.DataType) -> pa.Array:
    """Return an array of this type without elements, whose lists and texts have no offsets."""
    buffers: list[pa.Buffer | None] = [None]
    if not pa.types.is_struct(kind):
        buffers.append(NOTHING)
    if pa.types.is_string(kind):
        buffers.append(NOTHING)
    children = None
    if pa.types.is_map(kind):
        children = [without_offsets(pa.struct([kind.key_field, kind.item_field]))]
    elif pa.types.is_nested(kind):
        children = [without_offsets(kind.field(number).type) for number in range(kind.num_fields)]
    return pa.Array.from_buffers(kind, 0, buffers, children=children)


TEXTS = pa.list_(pa.string())
NAMED = {"texts": TEXTS, "map": pa.map_(pa.string(), TEXTS), "row": pa.struct([("a", TEXTS), ("b", pa.int32())])}


@pytest.mark.parametrize("inner", NAMED)
def test_lists_that_are_all_null_can_be_counted(inner: str) -> None:
    kind = pa.list_(NAMED[inner])
    nulls = pa.Array.from_buffers(
        kind, 3, [pa.py_buffer(b"\0"), pa.py_buffer(bytes(16))], children=[without_offsets(NAMED[inner])]
    )
    records = with_offsets(pa.record_batch([pa.array([1, 2, 3]), nulls, nulls], ["id", "lists", "again"]))

    records.validate(full=True)
    assert records.nbytes < 200
    assert records.to_pylist() == [{"id": number, "lists": None, "again": None} for number in (1, 2, 3)]


def test_what_lacks_nothing_is_left_as_it_is() -> None:
    maps = pa.array([[("k", [1])], None], pa.map_(pa.string(), pa.list_(pa.int32())))
    records = pa.record_batch([pa.array([1, 2]), pa.array([[["a"], None], None]), maps], ["id", "lists", "maps"])
    assert with_offsets(records) is records


def test_a_row_with_such_a_list_keeps_its_nulls() -> None:
    inner = pa.list_(TEXTS)
    nulls = pa.Array.from_buffers(
        inner, 3, [pa.py_buffer(b"\0"), pa.py_buffer(bytes(16))], children=[without_offsets(TEXTS)]
    )
    rows = pa.StructArray.from_arrays([pa.array([1, 2, 3]), nulls], ["n", "lists"], mask=pa.array([False, True, False]))
    records = with_offsets(pa.record_batch([rows], ["row"]))
    assert records.column("row").to_pylist() == [{"n": 1, "lists": None}, None, {"n": 3, "lists": None}]
    assert records.nbytes < 200
