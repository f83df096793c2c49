"""The options of a channel to the tiering server."""

from __future__ import annotations

import json
from typing import Final

MAX_MESSAGE_BYTES: Final = 64 << 20
"""A message carries a write request of a few MiB, or whole log batches."""

# If one of these calls were repeated, it could do its work twice: the connection may break after the work is done.
_NOT_REPEATABLE: Final = (
    {"service": "fluss_tiering.v1.Tables", "method": "CreateTable"},
    {"service": "fluss_tiering.v1.Tables", "method": "DropTable"},
    {"service": "fluss_tiering.v1.Tables", "method": "DropPartition"},
    {"service": "fluss_tiering.v1.Tables", "method": "WriteRows"},
)
# If gRPC repeats a stream and finds no server, it tells the status and never ends the wait for the first message: a
# reader then waits for ever, and no time limit ends it. Callers open a stream again themselves.
STREAMS: Final = (
    {"service": "fluss_tiering.v1.LakeTiering", "method": "WatchTieringStatuses"},
    {"service": "fluss_tiering.v1.Tables", "method": "FetchKvSnapshot"},
    {"service": "fluss_tiering.v1.Tables", "method": "FetchLog"},
)
_SERVICE_CONFIG: Final = json.dumps(
    {
        "methodConfig": [
            {"name": [*_NOT_REPEATABLE, *STREAMS]},
            {
                "name": [{}],
                "retryPolicy": {
                    "maxAttempts": 5,
                    "initialBackoff": "0.2s",
                    "maxBackoff": "3s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            },
        ]
    }
)
KEEPALIVE_OPTIONS: Final = (
    # A connection that carries nothing any more, because its other end or a machine in between is gone without a word,
    # is given up after 13 s, and the next call opens another one. Without pings, calls would use it for a quarter of an
    # hour. A connection without calls is looked after too, so that the next call finds it whole.
    ("grpc.keepalive_time_ms", 8_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
CHANNEL_OPTIONS: Final = (
    *KEEPALIVE_OPTIONS,
    ("grpc.service_config", _SERVICE_CONFIG),
    ("grpc.enable_retries", 1),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A client that waits for a server to restart finds it within two seconds. gRPC's own limit is two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
)
