"""Errors survive the wire as they are; foreign statuses become the nearest code."""

from __future__ import annotations

import grpc

from cases import cases
from fluss_tiering.api.v1 import common_pb2
from fluss_tiering.model.errors import GRPC_STATUS_NAMES, ErrorCode, FlussTieringError
from fluss_tiering.wire.errors import (
    code_from_metadata,
    code_from_status,
    error_from_pb,
    error_to_pb,
    status_of,
    trailing_metadata_of,
)


@cases("code", list(ErrorCode))
def test_every_code_has_a_status_and_comes_back(code: ErrorCode) -> None:
    assert status_of(code).name == GRPC_STATUS_NAMES[code]
    assert code_from_metadata(trailing_metadata_of(code)) is code
    assert error_from_pb(error_to_pb(FlussTieringError(code, "what"))).code is code


@cases("metadata", [None, (), (("content-type", "grpc"),), (("fluss-error-code", "OF_A_NEWER_SERVER"),)])
def test_no_known_code_is_none(metadata: tuple[tuple[str, str], ...] | None) -> None:
    assert code_from_metadata(metadata) is None


def test_an_unknown_code_of_one_part_is_unknown() -> None:
    error = error_from_pb(common_pb2.PbError(code="OF_A_NEWER_SERVER", message="what"))
    assert (error.code, error.message) == (ErrorCode.UNKNOWN, "what")


def test_statuses_without_a_code() -> None:
    assert code_from_status(grpc.StatusCode.UNAVAILABLE) is ErrorCode.UNAVAILABLE
    assert code_from_status(grpc.StatusCode.DEADLINE_EXCEEDED) is ErrorCode.UNAVAILABLE
    assert code_from_status(grpc.StatusCode.INVALID_ARGUMENT) is ErrorCode.INVALID_REQUEST
    assert code_from_status(grpc.StatusCode.RESOURCE_EXHAUSTED) is ErrorCode.INVALID_REQUEST
    assert code_from_status(grpc.StatusCode.ABORTED) is ErrorCode.UNKNOWN
