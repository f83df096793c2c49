"""The options of the tiering application: each is said once, in a field of `TierOptions`.

The application's own command line, the arguments that a `spark-submit` passes on, and the options of `fluss-tiering
tier` are made from these fields. This module imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

from fluss_tiering.model.duration import parse_duration_ms
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lease import DEFAULT_LEASE_DURATION_MS
from fluss_tiering.model.table import TablePath
from fluss_tiering.spark.round.waves import FRESHNESS_IS_LIMIT, time_limit_s

DEFAULT_CLAIM_TIMEOUT_S: Final = 180.0
"""Longer than the server takes to fail a round whose driver is silent, so that a restarted driver gets its table."""
DEFAULT_TABLE_CONCURRENCY: Final = 4
DEFAULT_WORKER_BUFFER_BYTES: Final = 128 << 20
"""The buffer of `round.reduce`, which this module does not import since it loads pyarrow."""

_ABOUT: Final = "about"


@dataclass(frozen=True, slots=True)
class About:
    """What a command line says of an option.

    Attributes:
        flag: The option's name on a command line.
        help: What the option means, in full sentences.
        metavar: What stands for the value in a help text; None for the option's own name.
        least: The smallest number that is allowed; None for any number.
        check: Raises a FlussTieringError if the text is not allowed; None if every text is.
        always_passed_on: Whether a submit passes the option on, even if it has its default value.
        in_application: Whether the application's own command line has the option.
    """

    flag: str
    help: str
    metavar: str | None = None
    least: int | None = None
    check: Callable[[str], object] | None = None
    always_passed_on: bool = False
    in_application: bool = True


def _about(flag: str, text: str, **more: Any) -> Mapping[str, About]:
    return {_ABOUT: About(flag, text, **more)}


def _check_round_duration(text: str) -> None:
    try:
        time_limit_s({}, text)
    except FlussTieringError as error:
        raise FlussTieringError(error.code, f"{error.message}, or {FRESHNESS_IS_LIMIT}") from None


@dataclass(frozen=True, slots=True)
class TierOptions:
    """Which tables to tier, and how. The metadata of each field says what it means.

    Attributes:
        tables: The tables, each once. There is at least one, but for a drain: without tables it takes all.
    """

    server: str = field(metadata=_about("--server", "The tiering server.", metavar="[ID@]HOST:PORT"))
    tables: tuple[TablePath, ...]
    lease_id: str | None = field(
        default=None,
        metadata=_about(
            "--lease-id", "The lease that was acquired for the tables. Without it the application acquires its own."
        ),
    )
    attempt_token: int | None = field(
        default=None, metadata=_about("--attempt-token", "The attempt token that came with the lease.")
    )
    lease_duration_ms: int = field(
        default=DEFAULT_LEASE_DURATION_MS,
        metadata=_about(
            "--lease-duration-ms",
            "How long a lease lasts. It is renewed every third of this time while its rounds run.",
            least=1,
            always_passed_on=True,
        ),
    )
    claim_timeout_s: float | None = field(
        default=None,
        metadata=_about(
            "--claim-timeout",
            f"How long to wait for a table that another round holds. The default is {DEFAULT_CLAIM_TIMEOUT_S:g} "
            "seconds, or 0 with --drain.",
            metavar="SECONDS",
            least=0,
        ),
    )
    max_round_bytes: int | None = field(
        default=None,
        metadata=_about(
            "--max-round-bytes",
            "The largest number of log bytes that one round reads. The table is then Pending again at once.",
            least=1,
        ),
    )
    max_round_duration: str | None = field(
        default=None,
        metadata=_about(
            "--max-round-duration",
            "How long a round may read, for example 10min, or 'freshness' for the table's own freshness. The table is "
            "then Pending again at once. The default is the table's option table.datalake.max-round-duration. Without "
            "both, a round has no limit.",
            metavar="DURATION",
            check=_check_round_duration,
        ),
    )
    skip_missing_log: bool = field(
        default=False,
        metadata=_about(
            "--skip-missing-log",
            "Go on if a part of a log was deleted before it was tiered. A log table goes on where its log begins now. "
            "A primary-key table is read again from its KV snapshots.",
        ),
    )
    worker_buffer_bytes: int = field(
        default=DEFAULT_WORKER_BUFFER_BYTES,
        metadata=_about(
            "--worker-buffer-bytes",
            "How many bytes of changes of a primary-key table a task holds in memory. More go to its local disk. A "
            "Python worker takes about 500 MiB beside three times this size.",
            least=1 << 20,
        ),
    )
    table_concurrency: int = field(
        default=DEFAULT_TABLE_CONCURRENCY,
        metadata=_about("--table-concurrency", "How many tables are tiered at the same time.", least=1),
    )
    # A failed task is tried again, as on a cluster; plain local[*] would not.
    master: str = field(default="local[*,4]", metadata=_about("--master", "Spark's master.", in_application=False))
    outcome_in_status: bool = field(
        default=False,
        metadata=_about(
            "--outcome-in-status",
            "A table that fails shows it in its tiering status only, not in the application's exit code.",
        ),
    )
    drain: bool = field(
        default=False,
        metadata=_about("--drain", "Run round after round, of these tables or of all, until no table is pending."),
    )
    follow: bool = field(
        default=False,
        metadata=_about("--follow", "With --drain: when no table is pending, wait until one is."),
    )
    time_budget: str | None = field(
        default=None,
        metadata=_about(
            "--time-budget",
            "With --drain: no round begins after this time, for example 30min.",
            metavar="DURATION",
            check=parse_duration_ms,
        ),
    )

    def __post_init__(self) -> None:
        """Refuse what would make every round fail, and options of a drain without a drain.

        Raises:
            FlussTieringError: INVALID_REQUEST if an option is wrong.
        """
        for option in OPTIONS.values():
            value = getattr(self, option.name)
            if value is not None and option.about.check is not None:
                option.about.check(value)
            if value is not None and not option.allows(value):
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST, f"{option.about.flag}: {value!r} is not {option.expected}"
                )
        if not self.drain and (self.follow or self.time_budget is not None):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST, "--follow and --time-budget are for --drain: give --drain too"
            )

    @property
    def claim_wait_s(self) -> float:
        """How long to wait for a table that another round holds.

        A drain does not wait: such a table is pending again later, or it is tiered.
        """
        if self.claim_timeout_s is not None:
            return self.claim_timeout_s
        return 0.0 if self.drain else DEFAULT_CLAIM_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Option:
    """An option, as commands need it.

    Attributes:
        name: The name of the field of `TierOptions`.
        type: The type of its value: bool, int, float or str.
        default: The value of an option that is not given; `dataclasses.MISSING` for one that must be given.
        about: What a command line says of it.
    """

    name: str
    type: type
    default: Any
    about: About

    @property
    def is_flag(self) -> bool:
        """Whether the option is given without a value."""
        return self.type is bool

    def parse(self, text: str) -> Any:  # noqa: ANN401 - as the field's type says
        """Return the value that a text of a command line stands for.

        Raises:
            FlussTieringError: INVALID_REQUEST if it stands for none.
        """
        if self.about.check is not None:
            self.about.check(text)
        # `int` takes 1_000 and spaces, too.
        is_number = text.isdecimal() or self.type is not int or self.about.least is None
        try:
            value = self.type(text)
        except ValueError:
            is_number, value = False, None
        if not is_number or not self.allows(value):
            raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{text!r} is not {self.expected}")
        return value

    def allows(self, value: Any) -> bool:  # noqa: ANN401 - as the field's type says
        """Return whether the value is at least the smallest one that is allowed."""
        # NaN is not at least anything.
        return self.about.least is None or value >= self.about.least

    @property
    def expected(self) -> str:
        """The numbers that are allowed, in words."""
        least = self.about.least
        if self.type is int:
            return "a whole number" if least is None else f"a whole number above {least - 1}"
        return "a number" if least is None else f"a number of at least {least}"


def _option(each: Field[Any], hint: Any) -> Option:  # noqa: ANN401 - a type as `typing` has it
    (kind,) = [part for part in get_args(hint) if part is not NoneType] or [hint]
    return Option(each.name, kind, each.default, each.metadata[_ABOUT])


OPTIONS: Final[Mapping[str, Option]] = {
    each.name: _option(each, get_type_hints(TierOptions)[each.name])
    for each in fields(TierOptions)
    if _ABOUT in each.metadata
}
"""All options but the tables, which are the positional arguments, by the names of their fields."""


def argument_parser() -> argparse.ArgumentParser:
    """Return a parser of the application's command line."""
    parser = argparse.ArgumentParser(prog="application.py", description="Tier tables of Apache Fluss into the lake.")
    for option in OPTIONS.values():
        if option.about.in_application:
            _add(parser, option)
    parser.add_argument(
        "tables", nargs="*", type=_parser_of(TablePath.parse), metavar="DATABASE.TABLE", help="The tables, each once."
    )
    return parser


def parse_arguments(arguments: Sequence[str]) -> TierOptions:
    """Return the options on a command line; wrong ones end the process with exit code 2."""
    parser = argument_parser()
    values = vars(parser.parse_args(arguments))
    values["tables"] = tuple(dict.fromkeys(values["tables"]))
    if not values["tables"] and not values["drain"]:
        parser.error("expected tables, or --drain for all tables that are pending")
    try:
        return TierOptions(**values)
    except FlussTieringError as error:
        parser.error(error.message)


def _add(parser: argparse.ArgumentParser, option: Option) -> None:
    about = option.about
    if option.is_flag:
        parser.add_argument(about.flag, dest=option.name, action="store_true", help=about.help)
        return
    required = option.default is MISSING
    parser.add_argument(
        about.flag,
        dest=option.name,
        type=_parser_of(option.parse),
        default=None if required else option.default,
        required=required,
        metavar=about.metavar,
        help=about.help,
    )


def _parser_of(parse: Callable[[str], object]) -> Callable[[str], object]:
    """Return the same parser, with errors as argparse expects them."""

    def parsed(text: str) -> object:
        try:
            return parse(text)
        except FlussTieringError as error:
            raise argparse.ArgumentTypeError(error.message) from None

    return parsed
