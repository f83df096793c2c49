"""The tiering application. `spark-submit` runs this file; `run` runs the application in the caller's own process."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Final

if __name__ == "__main__" and (
    (
        lacking := [
            each for each in ("fluss_tiering", "grpc", "numba", "pyarrow", "pyiceberg") if find_spec(each) is None
        ]
    )
    or sys.version_info < (3, 11)
):
    # The imports below would end with a traceback.
    lacks = f" and lacks {', '.join(lacking)}" if lacking else ""
    sys.stderr.write(
        f"error: the driver's Python {sys.executable} is {sys.version.split()[0]}{lacks}: expected 3.11 or later with "
        "what fluss-tiering[spark] requires, named by spark.pyspark.python, and fluss-tiering itself installed or in "
        "--py-files\n"
    )
    sys.exit(2)

from pyspark import SparkContext
from pyspark.sql import SparkSession

from fluss_tiering.client import TieringClient
from fluss_tiering.client.unchanged import fail_tables
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.object_store import require_store
from fluss_tiering.model.error_text import clean_error
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import is_switched_on, not_tiered
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.tiering import MAX_SENT_ERROR_CHARS, RoundOrigin, TieringState
from fluss_tiering.model.units import parse_duration_ms, parse_memory_size
from fluss_tiering.spark.drain import Drain, DrainLimits, PendingTables
from fluss_tiering.spark.ended import SparkEndedError, spark_has_ended
from fluss_tiering.spark.maintenance.background import BackgroundMaintenance
from fluss_tiering.spark.maintenance.maintain import Maintenance
from fluss_tiering.spark.maintenance.plan import MaintenanceLimits, Plan
from fluss_tiering.spark.maintenance.words import begin_text, done_text
from fluss_tiering.spark.options import TierOptions, parse_arguments
from fluss_tiering.spark.retry import RetryingClient
from fluss_tiering.spark.round.keepalive import KeepAlive
from fluss_tiering.spark.round.lease import Lease, Releaser, TableLease, open_lease
from fluss_tiering.spark.round.plan import PlanLimits
from fluss_tiering.spark.round.progress import Progress
from fluss_tiering.spark.round.result import TableResult
from fluss_tiering.spark.round.services import RoundServices
from fluss_tiering.spark.round.shared_stage import SharedStages
from fluss_tiering.spark.round.stage import Parallelism
from fluss_tiering.spark.startup.checks import check_may_tier, require_classic
from fluss_tiering.spark.startup.interrupts import ended_by_sigterm
from fluss_tiering.spark.startup.jvm import driver_jvm_conf, under_spark_submit
from fluss_tiering.spark.startup.session import own_session
from fluss_tiering.spark.startup.workers import shipped, warm_up
from fluss_tiering.spark.status_stream import StatusStream
from fluss_tiering.spark.table_run import TableRun, cancelled_error
from fluss_tiering.spark.without_spark import before_spark, without_spark
from fluss_tiering.version import other_version

EXIT_TABLE_FAILED: Final = 1
EXIT_CANNOT_START: Final = 2
EXIT_INTERRUPTED: Final = 3

_YARN_FILTER: Final = "org.apache.hadoop.yarn.server.webproxy.amfilter.AmIpFilter"

_MAINTENANCE_COMMIT_BYTES: Final = 128 << 20
"""Maintenance that gives way to a round loses about this much of its work, and keeps what it committed before."""

logger = logging.getLogger("fluss_tiering")


def run(
    options: TierOptions,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
    starting: Callable[[], AbstractContextManager[None]] = nullcontext,
    maintained: Callable[[Maintenance], None] = lambda done: None,
) -> list[TableResult]:
    """Tier the tables and return their outcomes, in the order given. A drain returns those of the tables it tiered.

    A failure of one table is part of its outcome. An error is raised only if no table can be tiered.

    Args:
        options: Which tables to tier, and how.
        spark: The Spark session to use; None to start one, which is stopped again.
        progress: Hears of each step of each table; None for log lines.
        starting: Returns a context in which Spark is started, once it is known that there is something to do.
        maintained: Takes the result of each maintenance between rounds that changed a lake table, in another thread.

    Raises:
        SparkEndedError: if Spark ends by itself during a drain.
        FlussTieringError: UNAVAILABLE if the server cannot be reached, or Spark does not start; TABLE_NOT_EXIST if the
            only table, or a table of a drain, does not exist; INVALID_REQUEST if an option is wrong.
    """
    if spark is not None:
        require_classic(spark)
    with ExitStack() as stack:
        client = stack.enter_context(TieringClient(options.server))
        if options.drain:
            # A table that does not exist is reported before Spark starts.
            client.get_tables(options.tables)
            done: dict[TablePath, TableResult] = {}
            if spark is None and not under_spark_submit():
                done, options, needs_spark = before_spark(client, options)
                if not needs_spark:
                    return [done[path] for path in sorted(done)]
            drained = _Application(options, client, stack, spark, progress, starting=starting).drain(maintained)
            later = {each.path: each for each in drained}
            return [each for _, each in sorted({**done, **later}.items())]
        existing, untiered = _tables(client, options.tables)
        switched_off = [table.path for table in existing if not is_switched_on(table)]
        untiered |= {path: _untiered(path, not_tiered(path)) for path in switched_off}
        tables = [table for table in existing if table.path not in untiered]
        done = {} if spark is not None else without_spark(client, options, [table.path for table in tables])
        if spark is None and not under_spark_submit():
            done |= _refused(client, options, [table for table in tables if table.path not in done])
        rest = [table for table in tables if table.path not in done]
        if rest:
            done |= _Application(options, client, stack, spark, progress, starting=starting).tier(rest)
        return [{**untiered, **done}[path] for path in options.tables]


class _Application:
    """Everything that rounds need. The exit stack closes it."""

    def __init__(
        self,
        options: TierOptions,
        client: TieringClient,
        stack: ExitStack,
        spark: SparkSession | None,
        progress: Progress | None,
        *,
        starting: Callable[[], AbstractContextManager[None]],
    ) -> None:
        storage = client.describe_storage()
        if warning := other_version(storage.server_version):
            logger.warning("%s", warning)
        if spark is None:
            check_may_tier(client)
            with starting():
                spark = stack.enter_context(own_session(options.master, driver_jvm_conf()))
                warm_up(spark)
        context = spark.sparkContext
        stack.enter_context(shipped(context))
        self._options = options
        self._client = client
        self._stack = stack
        self._releaser = stack.enter_context(Releaser(client))
        self._keepalive = stack.enter_context(KeepAlive(client, options.lease_duration_ms))
        self._stopped = threading.Event()
        self._client = stack.enter_context(RetryingClient(options.server, stopped=self._stopped))
        parallelism = Parallelism(context)
        self._services = RoundServices(
            client=self._client,
            spark=spark,
            catalog=IcebergCatalogs(spark),
            storage=storage,
            target=options.server,
            limits=PlanLimits(round_bytes=options.max_round_bytes),
            parallelism=parallelism,
            run_stage=SharedStages(parallelism).run_stage,
            buffer_bytes=options.worker_buffer_bytes,
            progress=progress or Progress(),
            max_round_duration=options.max_round_duration,
            skip_missing_log=options.skip_missing_log,
        )
        if context.uiWebUrl is not None:
            # The Airflow provider reads the address in this line.
            logger.info("Spark's user interface is at %s", context.uiWebUrl)
        self._driver = f"{context.applicationId} on {socket.gethostname()}, process {os.getpid()}"
        self._origin = RoundOrigin.of_process(os.environ, str(context.applicationId), _spark_ui_url(context))

    def tier(self, tables: Sequence[TableInfo]) -> dict[TablePath, TableResult]:
        """Run a round of each table, under one lease."""
        options = self._options
        lease = open_lease(
            self._client,
            [table.path for table in tables],
            lease_id=options.lease_id,
            attempt_token=options.attempt_token,
            duration_ms=options.lease_duration_ms,
        )
        tier, threads = self._table_run(lease).tier, self._threads()
        leases = {table.path: TableLease(self._client, self._keepalive, lease, table) for table in tables}
        for table in tables:
            # This includes tables that wait for their turn: the lease must not expire before.
            leases[table.path].hold(set(lease.pinned.get(table.table_id, ())))
        watched = [table.path for table in tables]
        self._stack.enter_context(StatusStream(self._client, watched, self._keepalive.hear))
        rounds = {table.path: threads.submit(tier, table, leases[table.path]) for table in tables}
        with self._stopped_by_signal():
            wait(rounds.values())
        return {path: future.result() for path, future in rounds.items()}

    def drain(self, maintained: Callable[[Maintenance], None]) -> list[TableResult]:
        """Run rounds of all tables that are pending. Each round leases the snapshots that it reads.

        Args:
            maintained: Takes the result of each maintenance between rounds that changed a lake table.
        """
        options = self._options
        lease = Lease(f"fluss-tiering-{uuid.uuid4()}", None, options.lease_duration_ms)
        run = self._table_run(lease)

        def tier(path: TablePath) -> TableResult | None:
            try:
                (table,) = self._client.get_tables([path])
            except FlussTieringError as error:
                logger.warning("a pending table is skipped: %s", error.message)
                return None
            result = run.tier(table, TableLease(self._client, self._keepalive, lease, table))
            return None if result.held_by_another else result

        budget_s = None if options.time_budget is None else parse_duration_ms(options.time_budget) / 1000
        limits = DrainLimits(options.table_concurrency, budget_s, options.follow)
        pending = self._stack.enter_context(PendingTables(self._client, options.tables, self._keepalive.hear))
        threads = self._threads()
        with self._stopped_by_signal():
            drain = Drain(pending, tier, limits, self._idle_work(maintained), self._services.progress.drained)
            results = drain.run(threads, self._stopped)
        if self._spark_ended():
            raise SparkEndedError()
        return results

    def _idle_work(self, maintained: Callable[[Maintenance], None]) -> BackgroundMaintenance | None:
        """Return the maintenance of lake tables between rounds; None for a drain that ends when nothing is pending."""
        options = self._options
        if not options.follow:
            return None
        limits = MaintenanceLimits(
            max_bytes=parse_memory_size(options.maintenance_bytes),
            cores=options.maintenance_cores,
            commit_bytes=_MAINTENANCE_COMMIT_BYTES,
        )
        interval_s = parse_duration_ms(options.maintenance_interval) / 1000

        def planned(path: TablePath, plan: Plan) -> None:
            if (text := begin_text(plan)) is not None:
                self._services.progress.note(path, text)

        def hear(done: Maintenance) -> None:
            self._services.progress.note(done.path, done_text(done))
            maintained(done)

        return self._stack.enter_context(
            BackgroundMaintenance(
                self._client,
                self._services.spark,
                options.tables,
                limits,
                interval_s=interval_s,
                planned=planned,
                hear=hear,
            )
        )

    def _table_run(self, lease: Lease) -> TableRun:
        return TableRun(
            self._services,
            lease,
            keepalive=self._keepalive,
            releaser=self._releaser,
            claim_timeout_s=self._options.claim_wait_s,
            driver=self._driver,
            origin=self._origin,
            stopped=self._stopped,
            spark_ended=self._spark_ended,
        )

    def _spark_ended(self) -> bool:
        return spark_has_ended(self._services.spark.sparkContext)

    def _threads(self) -> ThreadPoolExecutor:
        threads = ThreadPoolExecutor(self._options.table_concurrency, thread_name_prefix="fluss-tiering-table")
        return self._stack.enter_context(threads)

    @contextmanager
    def _stopped_by_signal(self) -> Iterator[None]:
        try:
            with ended_by_sigterm():
                yield
        except (KeyboardInterrupt, SystemExit):
            # Leaving the stack waits for the rounds: each stops, records its failure, and releases its snapshots.
            self._stopped.set()
            self._keepalive.stop_rounds(cancelled_error())
            raise


def exit_code(results: Sequence[TableResult], *, outcome_in_status: bool) -> int:
    """Return the exit code of an application.

    It is 0 if each table was tiered, and 1 if one failed. It is 3 if none failed, but some were interrupted: the
    application was cancelled, superseded or stopped, or its Spark has ended. With `outcome_in_status` a failure that is
    recorded in a tiering status does not count.
    """
    failed = [result for result in results if result.failed and not result.interrupted]
    if outcome_in_status:
        failed = [result for result in failed if not result.recorded]
    if failed:
        return EXIT_TABLE_FAILED
    return EXIT_INTERRUPTED if any(result.interrupted for result in results) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the application and return the exit code of the process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    try:
        results = run(options)
    except SparkEndedError as error:
        logger.error("%s", error.message)
        return EXIT_INTERRUPTED
    except FlussTieringError as error:
        logger.error("%s", error.message)
        return EXIT_CANNOT_START
    for result in results:
        # A line has told the error of a round that was tried.
        if result.error is not None and not result.attempted:
            logger.error("%s: %s", result.path, result.error)
    return exit_code(results, outcome_in_status=options.outcome_in_status)


def _spark_ui_url(context: SparkContext) -> str:
    """Return the address of Spark's user interface; empty if it has none. YARN keeps its own after the application."""
    # YARN sets this one; it has an entry for each of its proxies.
    of_yarn = context.getConf().get(f"spark.{_YARN_FILTER}.param.PROXY_URI_BASES", "").partition(",")[0]
    return of_yarn or context.uiWebUrl or ""


def _tables(client: TieringClient, paths: Sequence[TablePath]) -> tuple[list[TableInfo], dict[TablePath, TableResult]]:
    """Return the tables that exist, and an outcome for each other: a dropped table must not fail the others."""
    try:
        return client.get_tables(paths), {}
    except FlussTieringError as error:
        if error.code is not ErrorCode.TABLE_NOT_EXIST or len(paths) == 1:
            raise
    tables, missing = [], {}
    for path in paths:
        try:
            tables += client.get_tables([path])
        except FlussTieringError as error:
            if error.code is not ErrorCode.TABLE_NOT_EXIST:
                raise
            missing[path] = _untiered(path, error)
    return tables, missing


def _untiered(path: TablePath, error: FlussTieringError) -> TableResult:
    return TableResult(path, TieringState.FAILED, 0.0, error=error.message, attempted=False)


def _refused(client: TieringClient, options: TierOptions, tables: Sequence[TableInfo]) -> dict[TablePath, TableResult]:
    """Fail the rounds of the tables whose lake catalog demands what executors cannot do."""
    errors = {}
    for table in tables:
        properties = table.lake_catalog_properties
        try:
            require_store(properties.get("warehouse", ""), properties)
        except FlussTieringError as error:
            errors[table.path] = clean_error(error.message, MAX_SENT_ERROR_CHARS)
    claims = fail_tables(client, errors, lease_id=options.lease_id, attempt_token=options.attempt_token)
    return {
        path: TableResult(path, TieringState.FAILED, 0.0, epoch=claim.tiering_epoch, error=errors[path], recorded=True)
        for path, claim in claims.items()
    }


if __name__ == "__main__":
    sys.exit(main())
