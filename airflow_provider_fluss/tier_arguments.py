"""The options of the tiering application as arguments of an operator, under the same names."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.command_line import Option
from fluss_tiering.spark.options import OPTIONS

_BY_LEASE: Final = frozenset({"server", "lease_id", "attempt_token", "lease_duration_ms", "outcome_in_status"})
"""What the operator sets itself."""
_DRAIN: Final = frozenset(
    {"drain", "follow", "time_budget", "maintenance_interval", "maintenance_bytes", "maintenance_cores"}
)
"""What is for a drain, whose rounds have leases of their own: no sensor could wait for them."""


def argument_name(option: Option) -> str:
    """Return the name of the operator's argument for an option: `claim_timeout` for `--claim-timeout`."""
    return option.about.flag.removeprefix("--").replace("-", "_")


ARGUMENTS: Final[Mapping[str, Option]] = {
    argument_name(option): option
    for option in OPTIONS.values()
    if option.about.in_application and option.name not in _BY_LEASE | _DRAIN
}
"""The options that the operator takes, by the names of its arguments."""


def option_values(arguments: Mapping[str, object]) -> dict[str, Any]:
    """Return the values for fields of `TierOptions`. What is None, or an empty text of a template, is left out.

    Args:
        arguments: The arguments of the operator by their names, rendered: a number may be a text.

    Raises:
        FlussTieringError: INVALID_REQUEST if a value is not allowed. The message names the argument.
    """
    values = {}
    for name, argument in arguments.items():
        if argument is None or argument == "":
            continue
        option = ARGUMENTS[name]
        try:
            values[option.name] = _value(option, argument)
        except FlussTieringError as error:
            raise FlussTieringError(error.code, f"{name}: {error.message}") from None
    return values


def _value(option: Option, argument: object) -> Any:  # noqa: ANN401 - as the option's type says
    if option.is_flag:
        if str(argument).lower() in {"true", "false"}:
            return str(argument).lower() == "true"
        raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{argument!r} is not true or false")
    if isinstance(argument, timedelta):
        if option.type is not str:
            return option.parse(str(argument.total_seconds()))
        if argument < timedelta(0):
            raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{argument.total_seconds():g} s is below 0")
        if timedelta(0) < argument < timedelta(milliseconds=1):
            raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{argument} is shorter than one millisecond")
        return option.parse(f"{argument // timedelta(milliseconds=1)}ms")
    return option.parse(str(argument))
