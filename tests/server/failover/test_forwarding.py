"""How a standby server tells answers of the active server from failures of the connection to it."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.failover.forwarding import ActiveServer, gave_no_answer

CODE = ("fluss-error-code", "TABLE_NOT_EXIST")


def error(code: grpc.StatusCode, details: str | None, *trailing: tuple[str, str]) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)


@pytest.mark.parametrize(
    ("failed", "unanswered"),
    [
        (error(grpc.StatusCode.UNAVAILABLE, "failed to connect"), True),
        (error(grpc.StatusCode.UNAVAILABLE, "the server is starting", CODE), False),
        (error(grpc.StatusCode.INTERNAL, "Internal error from Core"), True),
        (error(grpc.StatusCode.INTERNAL, "Internal error from Core", CODE), False),
        (error(grpc.StatusCode.INTERNAL, "the disk is full"), False),
        (error(grpc.StatusCode.NOT_FOUND, "Internal error from Core"), False),
    ],
)
def test_what_has_no_code_of_ours_may_be_no_answer(failed: grpc.aio.AioRpcError, unanswered: bool) -> None:  # S28
    assert gave_no_answer(failed) is unanswered


class Context:
    """A client's call, which the standby server ends."""

    async def abort(self, code: grpc.StatusCode, details: str, trailing: Any) -> None:
        raise KeyError(code, details, dict(trailing))


async def refusal(failed: grpc.aio.AioRpcError, *, closed: bool = False) -> Exception:
    server = ActiveServer("there:7")
    if closed:
        await server.close()
    context: Any = Context()
    with pytest.raises((FlussTieringError, KeyError)) as refused:
        await server.fail(failed, context)
    await server.close()
    return refused.value


async def test_an_answer_is_passed_on_with_what_it_says() -> None:  # S28
    own = ("grpc-status-details-bin", "of the connection")
    passed_on = await refusal(error(grpc.StatusCode.NOT_FOUND, "no such table", CODE, own))
    assert passed_on.args == (grpc.StatusCode.NOT_FOUND, "no such table", dict([CODE]))
    assert (await refusal(error(grpc.StatusCode.INTERNAL, None))).args[1] == ""


@pytest.mark.parametrize(
    ("details", "closed", "reason"),
    [
        ("connection refused", False, "connection refused"),
        (None, False, "no answer"),
        ("connection refused", True, "it is no longer the active server"),
    ],
)
async def test_a_failure_of_the_connection_names_the_server_and_the_reason(
    details: str | None, closed: bool, reason: str
) -> None:  # S28
    refused = await refusal(error(grpc.StatusCode.UNAVAILABLE, details), closed=closed)
    assert isinstance(refused, FlussTieringError)
    assert refused.code is ErrorCode.UNAVAILABLE
    start = "the active server at there:7 cannot be reached from this standby server: "
    assert refused.message.startswith(f"{start}{reason}; ")
