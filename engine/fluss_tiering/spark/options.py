"""The options of the tiering application: each is said once, in a field of `TierOptions` (see `command_line`).

The application's own command line, the arguments that a `spark-submit` passes on, and the options of `fluss-tiering
tier` are made from these fields. This module imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import DRIVER_LEASE_DURATION_MS
from fluss_tiering.model.units import parse_duration_ms
from fluss_tiering.spark.command_line import (
    MOST_COUNT,
    WORTH_REWRITING,
    Option,
    about,
    add_arguments,
    at_least,
    check_options,
    options_of,
)
from fluss_tiering.spark.round.waves import FRESHNESS_IS_LIMIT, time_limit_s

DEFAULT_CLAIM_TIMEOUT_S: Final = 180.0
"""Longer than the server takes to interrupt a round with a silent driver, so that a restarted driver gets its table."""
DEFAULT_TABLE_CONCURRENCY: Final = 8
"""Small rounds share Spark jobs, so that 8 at a time take two thirds of the CPU of 4, and 16 take hardly less."""
DEFAULT_MAINTENANCE_INTERVAL: Final = "10min"
DEFAULT_MAINTENANCE_BYTES: Final = "1gb"
DEFAULT_WORKER_BUFFER_BYTES: Final = 128 << 20
"""The buffer of `round.reduce`, which this module does not import since it loads pyarrow."""

_IDLE: Final = ("maintenance_interval", "maintenance_bytes", "maintenance_cores")
"""Fields of `TierOptions` that say how lake tables are maintained while no round runs."""


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

    server: str = field(metadata=about("--server", "The tiering server.", metavar="[ID@]HOST:PORT"))
    tables: tuple[TablePath, ...]
    lease_id: str | None = field(
        default=None,
        metadata=about(
            "--lease-id", "The lease that was acquired for the tables. Without it the application acquires its own."
        ),
    )
    attempt_token: int | None = field(
        default=None, metadata=about("--attempt-token", "The attempt token that came with the lease.")
    )
    lease_duration_ms: int = field(
        default=DRIVER_LEASE_DURATION_MS,
        metadata=about(
            "--lease-duration-ms",
            "How long a lease lasts. It is renewed every third of this time while its rounds run.",
            least=1,
            always_passed_on=True,
        ),
    )
    claim_timeout_s: float | None = field(
        default=None,
        metadata=about(
            "--claim-timeout",
            f"How long to wait for a table that another round holds. The default is {DEFAULT_CLAIM_TIMEOUT_S:g} "
            "seconds, or 0 with --drain.",
            metavar="SECONDS",
            least=0,
        ),
    )
    max_round_bytes: int | None = field(
        default=None,
        metadata=about(
            "--max-round-bytes",
            "How much of the log one round reads at most, for example 10gb. The table is then Pending again at once.",
            metavar="SIZE",
            least=1,
            is_size=True,
        ),
    )
    max_round_duration: str | None = field(
        default=None,
        metadata=about(
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
        metadata=about(
            "--skip-missing-log",
            "Go on if a part of a log was deleted before it was tiered. A log table goes on where its log begins now. "
            "A primary-key table is read again from its KV snapshots.",
        ),
    )
    worker_buffer_bytes: int = field(
        default=DEFAULT_WORKER_BUFFER_BYTES,
        metadata=about(
            "--worker-buffer-bytes",
            "How much of the changes of a primary-key table a task holds in memory, for example 64mb. More go to its "
            "local disk. A Python worker takes about 500 MiB beside three times this size.",
            metavar="SIZE",
            least=1 << 20,
            is_size=True,
        ),
    )
    table_concurrency: int = field(
        default=DEFAULT_TABLE_CONCURRENCY,
        metadata=about("--table-concurrency", "How many tables are tiered at the same time.", least=1, most=MOST_COUNT),
    )
    # A failed task is tried again, as on a cluster; plain local[*] would not.
    master: str = field(
        default="local[*,4]",
        metadata=about("--master", "The master URL of Spark.", metavar="URL", in_application=False),
    )
    outcome_in_status: bool = field(
        default=False,
        metadata=about(
            "--outcome-in-status",
            "A table that fails shows it in its tiering status only, not in the application's exit code. "
            "The exit code is 3 if a round was interrupted.",
        ),
    )
    drain: bool = field(
        default=False,
        metadata=about("--drain", "Run round after round, of these tables or of all, until no table is pending."),
    )
    follow: bool = field(
        default=False,
        metadata=about("--follow", "With --drain: when no table is pending, wait until one is."),
    )
    time_budget: str | None = field(
        default=None,
        metadata=about(
            "--time-budget",
            "With --drain: no round begins after this time, for example 30min.",
            metavar="DURATION",
            check=at_least(parse_duration_ms, 1, "1ms"),
        ),
    )

    maintenance_interval: str = field(
        default=DEFAULT_MAINTENANCE_INTERVAL,
        metadata=about(
            "--maintenance-interval",
            "With --drain --follow: how often a lake table is looked at whose options ask for maintenance "
            "(table.datalake.auto-compaction, table.datalake.auto-expire-snapshot). It is maintained only while no "
            "round runs and no table is pending.",
            metavar="DURATION",
            check=at_least(parse_duration_ms, 1, "1ms"),
        ),
    )
    maintenance_bytes: str = field(
        default=DEFAULT_MAINTENANCE_BYTES,
        metadata=about(
            "--maintenance-bytes",
            "With --drain --follow: the largest size of the data files of a lake table that one such maintenance "
            "rewrites, at least 1mb.",
            metavar="SIZE",
            check=WORTH_REWRITING,
        ),
    )
    maintenance_cores: int = field(
        default=1,
        metadata=about(
            "--maintenance-cores",
            "With --drain --follow: about how many tasks of such a maintenance rewrite data files at the same time.",
            least=1,
            most=MOST_COUNT,
        ),
    )

    def __post_init__(self) -> None:
        """Refuse what would make every round fail, and options that mean nothing without another one.

        Raises:
            FlussTieringError: INVALID_REQUEST if an option is wrong.
        """
        check_options(self)
        if not self.drain and (self.follow or self.time_budget is not None):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST, "--follow and --time-budget are for --drain: give --drain too"
            )
        if not self.follow and (idle := [each for each in _IDLE if getattr(self, each) != OPTIONS[each].default]):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{OPTIONS[idle[0]].about.flag} is for the maintenance between the rounds of --drain --follow: give "
                "--drain --follow too, or maintain tables with `fluss-tiering maintain`",
            )

    @property
    def claim_wait_s(self) -> float:
        """How long to wait for a table that another round holds.

        A drain does not wait: such a table is pending again later, or it is tiered.
        """
        if self.claim_timeout_s is not None:
            return self.claim_timeout_s
        return 0.0 if self.drain else DEFAULT_CLAIM_TIMEOUT_S


OPTIONS: Final[Mapping[str, Option]] = options_of(TierOptions)
"""All options but the tables, which are the positional arguments, by the names of their fields."""


def argument_parser() -> argparse.ArgumentParser:
    """Return a parser of the application's command line."""
    parser = argparse.ArgumentParser(prog="application.py", description="Tier tables of Apache Fluss into the lake.")
    add_arguments(parser, TierOptions)
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
