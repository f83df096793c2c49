import pickle
import struct

import pytest
from refusals import refused

from cases import cases
from fluss_tiering.api.fluss.v1.connection_pb2 import ApiVersionsResponse, ErrorResponse, PbApiVersion
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey, ServedApis
from fluss_tiering.storage.fluss.rpc.call import ServerAddress
from fluss_tiering.storage.fluss.rpc.connection_steps import (
    MAX_REQUEST_BYTES,
    Credentials,
    decode_response,
    encode_request,
    frame_length,
)
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError


def test_a_request_is_framed_as_fluss_reads_it() -> None:
    # length 8 + 3, key 1012, version 0, request id 258, message
    assert encode_request(ApiKey.GET_METADATA, 0, 258, b"abc") == bytes.fromhex("0000000b 03f4 0000 00000102 616263")
    assert encode_request(ApiKey.PUT_KV, 1, 1, b"") == bytes.fromhex("00000008 03f8 0001 00000001")


def test_a_request_that_servers_refuse_for_its_size_is_not_sent() -> None:
    with refused(ErrorCode.INVALID_REQUEST, "PUT_KV", str(MAX_REQUEST_BYTES)):
        encode_request(ApiKey.PUT_KV, 1, 1, bytes(MAX_REQUEST_BYTES))


def test_responses_of_all_kinds_are_told_apart() -> None:
    error = ErrorResponse(error_code=7, error_message="no such table").SerializeToString()
    answer = decode_response(b"\x00" + struct.pack(">i", 9) + b"xyz", "here")
    assert (answer.request_id, bytes(answer.message), answer.error) == (9, b"xyz", None)
    refusal = decode_response(b"\x01" + struct.pack(">i", 9) + error, "here")
    assert refusal.request_id == 9
    assert refusal.error is not None
    assert refusal.error.fluss_error is FlussError.TABLE_NOT_EXIST
    failure = decode_response(b"\x02" + error, "here")
    assert failure.request_id is None
    assert failure.error is not None
    assert "no such table" in failure.error.message


@cases("prefix", [b"HTTP", b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x15\x03\x03\x00"])
def test_a_length_that_no_frame_has_names_the_server(prefix: bytes) -> None:
    with refused(ErrorCode.CORRUPT_DATA, "somewhere:80", "does not speak Fluss's protocol"):
        frame_length(prefix, "somewhere:80", 1 << 20)


@cases("frame", [b"\x03\x00\x00\x00\x01", b"\x00\x00", b"\x01\x00\x00\x00\x01\xff", b"\x02\xff"])
def test_frames_that_are_none_are_refused(frame: bytes) -> None:
    with refused(ErrorCode.CORRUPT_DATA, "here", "does not speak Fluss's protocol"):
        decode_response(frame, "here")


def test_errors_have_the_names_that_fluss_gives_them() -> None:
    error = FlussServerError(FlussError.of(50), "old epoch", "table 3")
    assert error.code is ErrorCode.FENCED_TIERING_EPOCH
    assert error.message == "table 3: Fluss says FENCED_TIERING_EPOCH_EXCEPTION: old epoch"
    # The number belongs to a later version.
    assert FlussError.of(4711) is FlussError.UNKNOWN_SERVER_ERROR
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.fluss_error, copy.message) == (FlussServerError, error.fluss_error, error.message)


def test_every_error_of_fluss_has_a_code() -> None:
    assert len({error.value for error in FlussError}) == len(FlussError) == 75
    for error in FlussError:
        assert isinstance(FlussServerError(error, "").code, ErrorCode)


def served(**versions: tuple[int, int]) -> ServedApis:
    return ServedApis.of(
        ApiVersionsResponse(
            api_versions=[
                PbApiVersion(api_key=ApiKey[name], min_version=lowest, max_version=highest)
                for name, (lowest, highest) in versions.items()
            ]
        )
    )


@cases(
    ("api", "has", "sent"),
    [
        (ApiKey.FETCH_LOG, (0, 3), 0),
        # Fluss 0.9.1, a build of main, and Fluss 1.0.0.
        (ApiKey.PUT_KV, (0, 1), 1),
        (ApiKey.PUT_KV, (0, 2), 2),
        (ApiKey.PUT_KV, (0, 3), 2),
        (ApiKey.GET_KV_SNAPSHOT_METADATA, (0, 0), 0),
        (ApiKey.GET_KV_SNAPSHOT_METADATA, (0, 1), 1),
        (ApiKey.GET_KV_SNAPSHOT_METADATA, (1, 9), 1),
    ],
)
def test_the_highest_version_that_both_sides_know_is_sent(api: ApiKey, has: tuple[int, int], sent: int) -> None:
    assert served(**{api.name: has}).version_of(api, "here") == sent


@pytest.mark.parametrize(
    ("api", "has", "messages"),
    [
        (ApiKey.PUT_KV, (0, 0), ("in versions 1 to 2", "has version 0;")),
        (ApiKey.PUT_KV, (3, 4), ("in versions 1 to 2", "has versions 3 to 4;")),
        (ApiKey.FETCH_LOG, (1, 3), ("FETCH_LOG (1015) in version 0:", "has versions 1 to 3;")),
    ],
)
def test_a_call_in_no_common_version_is_refused(api: ApiKey, has: tuple[int, int], messages: tuple[str, ...]) -> None:
    with refused(ErrorCode.UNSUPPORTED_VERSION, api.name, "at here", *messages):
        served(**{api.name: has}).version_of(api, "here")
    with refused(ErrorCode.UNSUPPORTED_VERSION, "ACQUIRE_KV_SNAPSHOT_LEASE", "1056", "does not have it"):
        served(**{api.name: has}).version_of(ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, "here")


def test_addresses() -> None:
    assert ServerAddress.parse_list("fluss-1:9123, [::1]:9124") == (
        ServerAddress("fluss-1", 9123),
        ServerAddress("::1", 9124),
    )
    assert str(ServerAddress("::1", 9124)) == "[::1]:9124"
    for text in ("", "fluss", "fluss:", ":9123", "fluss:0", "fluss:70000", "a:1,", "::1:9123", "http://fluss:9123"):
        with refused(ErrorCode.INVALID_REQUEST, "expected HOST:PORT"):
            ServerAddress.parse_list(text)


def test_credentials_are_whole_and_in_no_text() -> None:
    credentials = Credentials("admin", "pass-word")
    assert credentials.token() == b"\0admin\0pass-word"
    assert "pass-word" not in repr(credentials)
    for username, password in (("", "p"), ("u", ""), ("u", "a\0b")):
        with refused(ErrorCode.INVALID_REQUEST, "for Fluss"):
            Credentials(username, password)


def test_a_wrapped_error_is_named_by_its_cause() -> None:
    trace = (
        "org.apache.fluss.exception.FlussRuntimeException: Failed to get tables '[a.b]'.\n\tat a.X.y(X.java:1)\n"
        "Caused by: org.apache.fluss.exception.TableNotExistException: Table 'a.b' does not exist.\n"
    )
    error = FlussServerError.of(-1, trace, "a.b")
    assert error.fluss_error is FlussError.TABLE_NOT_EXIST
    assert error.message == "a.b: Fluss says TABLE_NOT_EXIST: Table 'a.b' does not exist."
    other = FlussServerError.of(-1, trace.replace("TableNotExist", "Some"))
    assert other.fluss_error is FlussError.UNKNOWN_SERVER_ERROR
    assert "\tat " not in other.message
