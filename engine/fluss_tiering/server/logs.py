"""The server's logs: one line for each event, with key=value fields or as JSON. Secrets are masked.

Control characters are replaced: whoever reads a log on a terminal must not be deceived by what a caller is called.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final, Literal

import structlog

from fluss_tiering.model.error_text import harmless, mask_secrets

_GRPC: Final = "grpc._cython.cygrpc"
_LOST_CLIENT: Final = "ExecuteBatchError raised in core"
"""A part of the line with a traceback that gRPC writes for each client that is gone when its answer is sent."""


def configure_logs(log_format: Literal["logfmt", "json"], level: str) -> None:
    """Send the logs of the process and of its libraries to standard error, in one format."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _mask,
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    rendering: list[structlog.typing.Processor] = (
        [structlog.processors.JSONRenderer()]
        if log_format == "json"
        else [
            _leave_out_missing,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], drop_missing=True),
        ]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    logging.getLogger(_GRPC).addFilter(_is_no_lost_client)


def _is_no_lost_client(record: logging.LogRecord) -> bool:
    """Return whether a line of gRPC is about more than a client that went away while it was answered."""
    return _LOST_CLIENT not in record.getMessage()


def _leave_out_missing(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Leave out the fields that have no value: in this format each would be a key with nothing behind it."""
    return {key: value for key, value in event.items() if value is not None}


def _mask(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = harmless(mask_secrets(value))
    return event
