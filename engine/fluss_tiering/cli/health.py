"""`fluss-tiering health`: ask whether a server answers calls."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Annotated, Final, cast

import grpc
import typer

from fluss_tiering.cli.common import options, output
from fluss_tiering.client import DEFAULT_TARGET
from fluss_tiering.client.failed_call import FailedCall, error_of
from fluss_tiering.client.secured_target import SecuredTarget
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.client.target import Target

_ANY_SERVICE: Final = ""
_OF_THE_ACTIVE_SERVER: Final = "fluss_tiering.v1.LakeTiering"
_TIMEOUT_S: Final = 5.0


def health(
    active: Annotated[
        bool,
        typer.Option("--active", help="Whether the server is the active one of several, and not a standby server."),
    ] = False,
    tls_name: Annotated[
        str | None,
        typer.Option(
            envvar="FLUSS_TIERING_HEALTH_TLS_NAME",
            metavar="NAME",
            help="The name that the server's certificate must have. The default is the host of the address.",
            show_default=False,
        ),
    ] = None,
    server: options.Server = DEFAULT_TARGET,
) -> None:
    """Ask whether the server answers calls, for the probes of containers and load balancers.

    It asks gRPC's health service, which takes no token, and prints its answer. The exit code is 0 for SERVING and 1 for
    another answer. A standby server answers, too, and `--active` asks for the active one. A server that asks clients
    for certificates asks this command, too.
    """
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415 - of the extra `server`

    target = Target.parse(server)
    request = health_pb2.HealthCheckRequest(service=_OF_THE_ACTIVE_SERVER if active else _ANY_SERVICE)
    security = replace(ClientSecurity.from_environment(), token=None, token_file=None)
    secured = SecuredTarget(target, security, tls_name)
    with closing(secured.open_channel()) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            raise error_of(cast("FailedCall", error), target.address, _TIMEOUT_S) from error
    output.print_line(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise typer.Exit(1)
