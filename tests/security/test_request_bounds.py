"""Requests whose fields have too many entries, or that are too large, are refused before anything is converted."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from callers import METHODS
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from cases import cases
from engine_support import ServerThread
from fluss_tiering.api.v1 import tables_pb2
from fluss_tiering.server.edge.methods import is_repeated
from fluss_tiering.wire.checks import MAX_BUCKET_ENTRIES, MAX_ENTRIES
from fluss_tiering.wire.tables import column_from_pb, descriptor_from_pb
from needs import needs

REQUEST, LARGE_REQUEST = 1 << 20, 8 << 20
LARGE = {"PrepareLakeTableSnapshot", "CommitLakeTableSnapshot"}
"""The calls that name all buckets of a table."""

VALUES = {"lease_id": "lease", "lease_duration_ms": 60_000, "database_name": "shop", "table_name": "orders"}


@pytest.fixture(scope="module")
@needs("system")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[grpc.Channel]:
    options = [("grpc.max_send_message_length", -1), ("grpc.enable_retries", 0)]
    with (
        ServerThread(tmp_path_factory.mktemp("bounds") / "data") as server,
        grpc.insecure_channel(server.target, options) as opened,
    ):
        yield opened


def small(descriptor: Descriptor) -> Message:
    """Return a message whose required fields are set."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if is_repeated(field):
            continue
        if field.name in VALUES:
            setattr(message, field.name, VALUES[field.name])
        elif field.name in ("table_path", "descriptor") and field.message_type is not None:
            getattr(message, field.name).CopyFrom(small(field.message_type))
    return message


def repeated_fields(descriptor: Descriptor, outer: tuple[FieldDescriptor, ...]) -> Iterator[list[FieldDescriptor]]:
    """Yield the way to each repeated field of a message, through the messages that it has."""
    for field in descriptor.fields:
        if is_repeated(field):
            yield [*outer, field]
        inner = field.message_type
        if inner is not None and not inner.GetOptions().map_entry and len(outer) < 3:
            yield from repeated_fields(inner, (*outer, field))


WAYS = [
    (path, way)
    for path, method in METHODS.items()
    if not method.client_streaming
    for way in repeated_fields(method.input_type, ())
]


def crowd(message: Message, way: list[FieldDescriptor], count: int) -> None:
    """Add entries to the field at the end of a way."""
    first, *rest = way
    value = getattr(message, first.name)
    if rest:
        inner = value.add() if is_repeated(first) else value
        assert first.message_type is not None
        inner.CopyFrom(small(first.message_type))
        crowd(inner, rest, count)
    elif first.message_type is not None and first.message_type.GetOptions().map_entry:
        for number in range(count):
            value[f"k{number}"] = ""
    elif first.message_type is not None:
        entry = small(first.message_type)
        value.extend([entry] * count)
    elif first.type == FieldDescriptor.TYPE_STRING:
        value.extend(f"{number}" for number in range(count))
    else:
        value.extend(range(count))


@cases(("path", "way"), WAYS)
def test_every_repeated_field_has_a_limit(channel: grpc.Channel, path: str, way: list[FieldDescriptor]) -> None:
    of_buckets = METHODS[path].name in LARGE and len(way) > 1
    request = small(METHODS[path].input_type)
    crowd(request, way, (MAX_BUCKET_ENTRIES if of_buckets else MAX_ENTRIES) + 1)
    with pytest.raises(grpc.RpcError) as refused:
        list(channel.unary_stream(path)(request.SerializeToString(), timeout=30))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT, refused.value.details()
    assert "expected at most" in refused.value.details()


@cases("path", [path for path, method in METHODS.items() if not method.client_streaming])
def test_each_request_has_a_size_that_fits_its_method(channel: grpc.Channel, path: str) -> None:
    limit = LARGE_REQUEST if METHODS[path].name in LARGE else REQUEST
    for size, expected in ((limit, "cannot be decoded"), (limit + 1, f"{limit + 1} bytes")):
        with pytest.raises(grpc.RpcError) as refused:
            # Bytes that no decoder takes.
            list(channel.unary_stream(path)(b"\xff" * size, timeout=30))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert expected in refused.value.details()


def test_a_compressed_request_is_refused_and_not_inflated(channel: grpc.Channel) -> None:
    path = "/fluss_tiering.v1.Tables/GetTables"
    for size in (10, 1 << 20, 256 << 20):
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(path)(b"\0" * size, compression=grpc.Compression.Gzip, timeout=30)
        # gRPC's own words. A message that it inflates is refused with INVALID_ARGUMENT or RESOURCE_EXHAUSTED.
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED, refused.value.details()
        assert "gzip" in refused.value.details()


def test_fields_of_types_count_together_with_columns() -> None:
    message = tables_pb2.PbTableDescriptor(num_buckets=1)
    column = message.columns.add(name="c")
    column.data_type.root = tables_pb2.PB_DATA_TYPE_ROOT_ROW
    for number in range(100):
        field = column.data_type.fields.add(name=f"f{number}")
        field.data_type.root = tables_pb2.PB_DATA_TYPE_ROOT_ROW
        for inner in range(48):
            field.data_type.fields.add(name=f"g{inner}").data_type.root = tables_pb2.PB_DATA_TYPE_ROOT_INT
    converted = descriptor_from_pb(message)
    assert converted.columns == (column_from_pb(column),)
    for number in range(2 * 50):
        message.columns.add(name=f"d{number}").data_type.root = tables_pb2.PB_DATA_TYPE_ROOT_INT
    with pytest.raises(Exception, match="5001 entries in all: expected at most 5000"):
        descriptor_from_pb(message)


def test_a_request_that_names_a_large_table_often_has_no_huge_answer(channel: grpc.Channel) -> None:
    create = small(METHODS["/fluss_tiering.v1.Tables/CreateTable"].input_type)
    assert isinstance(create, tables_pb2.CreateTableRequest)
    create.descriptor.num_buckets = 1
    for number in range(500):
        column = create.descriptor.columns.add(name=f"column_{number}", comment="x" * 80)
        column.data_type.root, column.data_type.nullable = tables_pb2.PB_DATA_TYPE_ROOT_INT, True
    channel.unary_unary("/fluss_tiering.v1.Tables/CreateTable")(create.SerializeToString(), timeout=30)
    get = tables_pb2.GetTablesRequest(table_paths=[create.table_path] * 3)
    path = "/fluss_tiering.v1.Tables/GetTables"
    answer = channel.unary_unary(path)(get.SerializeToString(), timeout=30)
    assert len(tables_pb2.GetTablesResponse.FromString(answer).tables) == 3
    get = tables_pb2.GetTablesRequest(table_paths=[create.table_path] * MAX_ENTRIES)
    with pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(path)(get.SerializeToString(), timeout=30)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "the answer to GetTables is larger than 32 MiB" in refused.value.details()
