"""The blocking client of the tiering server."""

from __future__ import annotations

from fluss_tiering.client.table_calls import TableCalls
from fluss_tiering.client.tiering_calls import TieringCalls


class TieringClient(TableCalls, TieringCalls):
    """The blocking client of the tiering server.

    Threads may share a client. A `with` block closes it.

    If the server cannot be reached for a moment, a call is tried again, unless a repeated call could do its work twice.
    Each method raises FlussTieringError with the code that the server gave. The code is UNAVAILABLE if the server
    cannot be reached or is too slow. The section "Raises" of a method lists the other codes.

    Args:
        target: The address of the server, as "host:port". With "id@host:port" each call is refused unless the server
            has this id, which it logs at its start.
        timeout: The deadline of each call, and the longest wait for each message of a stream, in seconds.
        label: What errors name besides the address, for example a connection of Airflow.
        security: The client's credentials; None for those that the environment variables name.

    Raises:
        FlussTieringError: INVALID_REQUEST if the address has no host or no port, if the credentials are wrong or would
            be sent to another machine without TLS, or if this process was forked from one that had used a client. Each
            call raises it if a server of another id answers.
    """
