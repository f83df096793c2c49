"""The maintenance application: `spark-submit` runs this file to maintain, compact, expire or verify lake tables.

The last line that it prints is a summary. It names each table that failed, so that a scheduler that keeps only the end
of the output can tell which one it was.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.lake import nothing_tiered, skipped_text
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.plural import counted
from fluss_tiering.spark.audit.report import TableAudit, differing_text, equal_text
from fluss_tiering.spark.audit.verify import verify_table
from fluss_tiering.spark.maintenance.compact import compact_table
from fluss_tiering.spark.maintenance.expire import expire_snapshots
from fluss_tiering.spark.maintenance.maintain import maintain_table
from fluss_tiering.spark.maintenance.plan import Step, plan_table, tables_to_maintain
from fluss_tiering.spark.maintenance.publish import publish_table
from fluss_tiering.spark.maintenance.words import (
    compacted_text,
    done_text,
    expired_text,
    limits_of,
    planned_text,
    published_text,
)
from fluss_tiering.spark.maintenance_options import (
    CompactOptions,
    ExpireOptions,
    MaintainOptions,
    MaintenanceOptions,
    PublishOptions,
    VerifyOptions,
    parse_arguments,
)
from fluss_tiering.spark.startup.checks import check_may_tier, require_classic
from fluss_tiering.spark.startup.interrupts import check_interrupt, ended_by_sigterm
from fluss_tiering.spark.startup.session import own_session
from fluss_tiering.spark.startup.workers import shipped

EXIT_TABLE_FAILED: Final = 1
EXIT_CANNOT_START: Final = 2

logger = logging.getLogger("fluss_tiering")


def run(options: MaintenanceOptions, spark: SparkSession | None = None) -> dict[str, str]:
    """Maintain the tables one after the other, and return the error of each table that failed by its path.

    Args:
        options: The command, with its tables.
        spark: The Spark session to use; None to start one, which is stopped again.

    Raises:
        FlussTieringError: UNAVAILABLE if the server cannot be reached or Spark does not start; TABLE_NOT_EXIST if one
            of the tables does not exist.
    """
    if spark is not None:
        require_classic(spark)
    with TieringClient(options.server) as client:
        # A table that does not exist is reported before Spark starts.
        if isinstance(options, MaintainOptions):
            chosen = tables_to_maintain(client, options.tables, everything=options.all_tables)
            tables, steps = [table for table, _ in chosen], {table.path: each for table, each in chosen}
        else:
            tables, steps = client.get_tables(options.tables), {}
        if not tables:
            return {}
        if _changes_lake(options):
            check_may_tier(client)
        started = own_session("local[*]") if spark is None else nullcontext(spark)
        with ended_by_sigterm(), started as session, shipped(session.sparkContext):
            return _each(tables, _work(options, client, session, steps))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the application and return the exit code of the process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    try:
        failed = run(options)
    except FlussTieringError as error:
        logger.error("%s: %s", options.command, error.message)
        return EXIT_CANNOT_START
    if not failed:
        logger.info("%s: done", options.command)
        return 0
    details = "; ".join(f"{table}: {error}" for table, error in failed.items())
    count = max(len(options.tables), len(failed))
    logger.error("%s failed for %d of %s: %s", options.command, len(failed), counted(count, "table"), details)
    return EXIT_TABLE_FAILED


def _changes_lake(options: MaintenanceOptions) -> bool:
    return not isinstance(options, VerifyOptions) and not (isinstance(options, MaintainOptions) and options.dry_run)


def _each(tables: Sequence[TableInfo], work: Callable[[TableInfo], str | None]) -> dict[str, str]:
    failed = {}
    for table in tables:
        try:
            error = work(table)
        except FlussTieringError as raised:
            error = raised.message
        check_interrupt()
        if error is not None:
            failed[str(table.path)] = " ".join(error.split())
    return failed


def _work(
    options: MaintenanceOptions,
    client: TieringClient,
    spark: SparkSession,
    steps: Mapping[TablePath, frozenset[Step]],
) -> Callable[[TableInfo], str | None]:
    """Return what is done with each table. It returns an error, or None if all is well."""
    match options:
        case MaintainOptions():
            return partial(_maintain, options, client, spark, steps)
        case CompactOptions():
            return partial(_compact, options, spark)
        case ExpireOptions():
            return partial(_expire, options, client, spark)
        case VerifyOptions():
            return partial(_verify, options, client, spark)
        case PublishOptions():
            return partial(_publish, options, client, spark)


def _maintain(
    options: MaintainOptions,
    client: TieringClient,
    spark: SparkSession,
    steps: Mapping[TablePath, frozenset[Step]],
    table: TableInfo,
) -> str | None:
    limits = limits_of(options)
    if options.dry_run:
        plan = plan_table(client, spark, table, steps[table.path], limits, with_merges=True)
        if plan is None and options.tables:
            return nothing_tiered(table).message
        logger.info("%s: %s", table.path, skipped_text(table) if plan is None else planned_text(plan))
        return None
    done = maintain_table(client, spark, table, steps=steps[table.path], limits=limits)
    if done.was_never_tiered and options.tables:
        return nothing_tiered(table).message
    if done.error is None:
        logger.info("%s: %s", table.path, skipped_text(table) if done.was_never_tiered else done_text(done))
    return done.error


def _compact(options: CompactOptions, spark: SparkSession, table: TableInfo) -> str | None:
    done = compact_table(spark, table, min_input_files=options.min_input_files, delete_files=options.delete_files)
    if done.error is None:
        logger.info("%s: compacted: %s", table.path, compacted_text(done))
    return done.error


def _expire(options: ExpireOptions, client: TieringClient, spark: SparkSession, table: TableInfo) -> str | None:
    done = expire_snapshots(client, spark, table, older_than=options.age, retain_last=options.retain_last)
    if done.error is None:
        logger.info("%s: %s", table.path, expired_text(done))
    return done.error


def _publish(options: PublishOptions, client: TieringClient, spark: SparkSession, table: TableInfo) -> str | None:
    done = publish_table(client, spark, table, snapshot=options.snapshot, tag=options.tag)
    if done.error is None:
        logger.info("%s: %s", table.path, published_text(done))
    return done.error


def _verify(options: VerifyOptions, client: TieringClient, spark: SparkSession, table: TableInfo) -> str | None:
    server, limit, age = options.server, options.limit, options.age
    audit = verify_table(client, spark, table, target=server, max_differences=limit, newer_than=age)
    for each in audit.differences:
        key = ", ".join(f"{name} {value}" for name, value in each.key.items())
        logger.error(
            "%s: bucket %d, %s: %s (%d in the table, %d in the lake)",
            table.path,
            each.bucket,
            key,
            each.kind,
            each.source_rows,
            each.lake_rows,
        )
    error = _difference(table, audit)
    if error is None:
        logger.info("%s: %s", table.path, equal_text(table, audit))
    return error


def _difference(table: TableInfo, audit: TableAudit) -> str | None:
    if audit.was_never_tiered:
        return nothing_tiered(table).message
    return None if audit.equal else differing_text(audit)


if __name__ == "__main__":
    sys.exit(main())
