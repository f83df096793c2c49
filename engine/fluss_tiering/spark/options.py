"""What an application is told to do, from a caller or from the command line of `spark-submit`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fluss_tiering.model.duration import parse_duration_ms
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.lease import DEFAULT_LEASE_DURATION_MS
from fluss_tiering.model.table import TablePath
from fluss_tiering.spark.round.waves import FRESHNESS_IS_LIMIT, time_limit_s

DEFAULT_CLAIM_TIMEOUT_S: Final = 180.0
"""Longer than the server takes to fail a round whose driver is silent (S4), so that a restarted one gets its table."""
DEFAULT_TABLE_CONCURRENCY: Final = 4


def claim_timeout_s(given: float | None, *, drain: bool) -> float:
    """How long to wait for a table that another round holds, unless it is given.

    A drain does not wait: such a table is pending again later, or tiered.
    """
    if given is not None:
        return given
    return 0.0 if drain else DEFAULT_CLAIM_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class TierOptions:
    """What to tier, and how.

    Attributes:
        server: address, "host:port".
        tables: each once; at least one, but for a drain, which takes all tables with none.
        lease_id: what was acquired for the tables; None lets the application lease what it needs.
        attempt_token: of that acquire.
        claim_timeout_s: how long to wait for a table that another round holds.
        max_round_bytes: of a table's log in one round; what is left is due at once in the next.
        max_round_duration: how long a round may read, as Fluss writes durations, or "freshness": see
            `waves.time_limit_s`.
        table_concurrency: how many tables are tiered at once.
        master: Spark's, for an application that starts its own session.
        outcome_in_status: a table that failed shows in its status alone, not in the exit code.
        drain: whether round follows round until nothing is pending, instead of one round of each table.
        follow: whether a drain waits for more when nothing is pending.
        time_budget: of a drain, as Fluss writes durations, after which no round begins; None for any time.
    """

    server: str
    tables: tuple[TablePath, ...]
    lease_id: str | None = None
    attempt_token: int | None = None
    lease_duration_ms: int = DEFAULT_LEASE_DURATION_MS
    claim_timeout_s: float = DEFAULT_CLAIM_TIMEOUT_S
    max_round_bytes: int | None = None
    max_round_duration: str | None = None
    table_concurrency: int = DEFAULT_TABLE_CONCURRENCY
    # A failed task is tried again, as on a cluster; plain local[*] would not.
    master: str = "local[*,4]"
    outcome_in_status: bool = False
    drain: bool = False
    follow: bool = False
    time_budget: str | None = None


def parse_arguments(arguments: Sequence[str]) -> TierOptions:
    """The options on a command line (`submit.application_arguments`); a wrong one ends the process with status 2."""
    parser = argument_parser()
    values = parser.parse_args(arguments)
    if not values.tables and not values.drain:
        parser.error("expected tables, or --drain for whatever is pending")
    if not values.drain and (values.follow or values.time_budget is not None):
        parser.error("--follow and --time-budget are for --drain")
    return TierOptions(
        server=values.server,
        tables=tuple(dict.fromkeys(values.tables)),
        lease_id=values.lease_id,
        attempt_token=values.attempt_token,
        lease_duration_ms=values.lease_duration_ms,
        claim_timeout_s=claim_timeout_s(values.claim_timeout, drain=values.drain),
        max_round_bytes=values.max_round_bytes,
        max_round_duration=values.max_round_duration,
        table_concurrency=values.table_concurrency,
        outcome_in_status=values.outcome_in_status,
        drain=values.drain,
        follow=values.follow,
        time_budget=values.time_budget,
    )


def argument_parser() -> argparse.ArgumentParser:
    """What the application's command line may hold."""
    parser = argparse.ArgumentParser(prog="application.py", description="Tiers tables of Apache Fluss into the lake.")
    add = parser.add_argument
    add("--server", required=True, metavar="HOST:PORT", help="the tiering server")
    add("--lease-id", help="what was acquired for the tables; without it the application leases what it needs")
    add("--attempt-token", type=int, help="of that acquire")
    add(
        "--lease-duration-ms",
        type=_positive,
        default=DEFAULT_LEASE_DURATION_MS,
        help="how long a lease lasts; it is renewed every third of that while its rounds run",
    )
    add(
        "--claim-timeout",
        type=float,
        metavar="SECONDS",
        help=f"how long to wait for a table that another round holds; {DEFAULT_CLAIM_TIMEOUT_S:g}, with --drain 0",
    )
    add("--max-round-bytes", type=_positive, help="of a table's log in one round; what is left is due at once")
    add(
        "--max-round-duration",
        type=_round_duration,
        metavar="DURATION",
        help="how long a round may read, as 10min, or 'freshness' for the table's own; what is left is due at once; "
        "without it the table's table.datalake.max-round-duration counts, and without that there is no limit",
    )
    add(
        "--table-concurrency",
        type=_positive,
        default=DEFAULT_TABLE_CONCURRENCY,
        help="how many tables are tiered at once",
    )
    add("--outcome-in-status", action="store_true", help="failed tables do not fail the application")
    add("--drain", action="store_true", help="round after round of the tables, or of all, until none is pending")
    add("--follow", action="store_true", help="with --drain: wait for more when none is pending")
    add("--time-budget", type=_duration, metavar="DURATION", help="with --drain: after it, as 30min, no round begins")
    add("tables", nargs="*", type=_path, metavar="DATABASE.TABLE", help="the tables, each once")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _duration(text: str) -> str:
    try:
        parse_duration_ms(text)
    except FlussTieringError as error:
        raise argparse.ArgumentTypeError(error.message) from None
    return text


def _round_duration(text: str) -> str:
    try:
        time_limit_s({}, text)
    except FlussTieringError as error:
        raise argparse.ArgumentTypeError(f"{error.message}, or {FRESHNESS_IS_LIMIT}") from None
    return text


def _path(text: str) -> TablePath:
    try:
        return TablePath.parse(text)
    except FlussTieringError as error:
        raise argparse.ArgumentTypeError(error.message) from None
