"""The operators that maintain, compact, expire, verify and publish lake tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.operators.arguments import duration_ms, table_paths, whole_number, why_not_tiered
from airflow_provider_fluss.operators.engine_submit import EngineSubmitOperator, Resumed, Submit
from airflow_provider_fluss.operators.spark_submit import logged_error
from fluss_tiering.model.error_text import mask_secrets
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.spark.command_line import Option, options_of
from fluss_tiering.spark.maintenance_options import (
    DEFAULT_CORES,
    DEFAULT_DELETE_FILES,
    DEFAULT_LIMIT,
    DEFAULT_MANY_DELETE_FILES,
    DEFAULT_MAX_BYTES,
    DEFAULT_MIN_INPUT_FILES,
    CompactOptions,
    ExpireOptions,
    MaintainOptions,
    MaintenanceOptions,
    PublishOptions,
    VerifyOptions,
)

if TYPE_CHECKING:
    from airflow.sdk import Context


class FlussMaintenanceOperator(EngineSubmitOperator):
    """Run one command of the maintenance application on tables, one after the other, in one Spark application.

    This is the base of the operators for the commands. They take every argument of `SparkSubmitOperator` except
    `application` and `application_args`. If tables fail, the others are still done, and the error of the task names
    each table that failed. In cluster deploy mode the error can only name all tables of the task; the driver's log
    tells more.

    Args:
        tables: The `database.table` of each table. (templated)
        fluss_conn_id: The connection of the tiering server. (templated)
        name: The name of the Spark application; None for `fluss-` and the command. (templated)
        kwargs: `conn_id`, which is the Spark connection, `submit`, which is another `Way` to submit, or other arguments
            of `SparkSubmitOperator`.
    """

    template_fields: Sequence[str] = (*EngineSubmitOperator.template_fields, "tables", "fluss_conn_id")
    command: ClassVar[str]
    """The command in the name of the Spark application."""
    kind: ClassVar[type[MaintenanceOptions]]
    """The options of the application. Those that the operator has as attributes are its arguments."""

    def __init__(
        self,
        *,
        tables: Sequence[str],
        fluss_conn_id: str = FlussHook.default_conn_name,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name or f"fluss-{self.command}", **kwargs)
        self.tables: Sequence[str] | None = tables
        self.fluss_conn_id = fluss_conn_id

    def options(self, server: str, tables: tuple[TablePath, ...]) -> MaintenanceOptions:
        """Return the options of the application, with those that are arguments of the operator.

        Raises:
            FlussTieringError: INVALID_REQUEST if an argument of the operator has a wrong value.
            WrongArgumentError: An argument is not of the type that is expected.
        """
        known, own = options_of(self.kind), vars(self)
        given = {name: _value(option, own[name]) for name, option in known.items() if name in own}
        return self.kind(server, tables, **given)

    def execute(self, context: Context) -> None:
        """Submit the application and wait until it ends."""
        self._run(context)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:  # noqa: ANN401 - as Airflow has it
        """Go on with the operator that submits, after its trigger has ended."""
        self._run(context, (next_method, next_kwargs))

    def _run(self, context: Context, resumed: Resumed | None = None) -> None:
        from fluss_tiering.spark import submit as engine  # noqa: PLC0415

        submit = self.make_submit()
        submit.check()
        options = self._checked_options(submit)
        arguments = engine.maintenance_arguments(options)
        operator = submit.prepare(engine.MAINTENANCE_APPLICATION, arguments, self.fluss_conn_id)
        try:
            self.run_submit(operator, context, resumed)
        except AirflowFailException:
            raise
        except Exception as error:
            message = mask_secrets(str(error))
            said = (
                logged_error(message)
                or f"{options.command} of {', '.join(map(str, options.tables)) or 'lake tables'} failed: {message}"
            )
            # The other tables are done already, and another try would fail for these again.
            if wrong := self._why_never(options.tables):
                reason = "" if wrong in said else f": {wrong}"
                raise AirflowFailException(f"{said}; no retry mends this{reason}") from error
            raise AirflowException(said) from error

    def _paths(self) -> tuple[TablePath, ...]:
        return tuple(table_paths(self.tables))

    def _why_never(self, tables: Sequence[TablePath]) -> str | None:
        """Return why some of the tables cannot be maintained; None if nothing is wrong or if it is not known."""
        if not tables:
            return None
        try:
            with FlussHook(self.fluss_conn_id).get_client() as client:
                return "; ".join(why_not_tiered(client, tables).values()) or None
        except FlussTieringError as error:
            self.log.warning("Whether the tables still exist is not known: %s", error)
            return None

    def _checked_options(self, submit: Submit) -> MaintenanceOptions:
        tables = self._paths()
        server = submit.server_address(self.fluss_conn_id)
        try:
            return self.options(server, tables)
        except FlussTieringError as error:
            # The message has the option of the command, whose name differs from the argument's in its hyphens.
            flag, colon, rest = error.message.partition(":")
            name = flag.removeprefix("--").replace("-", "_") if flag.startswith("--") else flag
            raise AirflowFailException(f"{name}{colon}{rest}") from None


class FlussMaintainOperator(FlussMaintenanceOperator):
    """Do what is worth doing for lake tables: compact them, merge manifests, expire snapshots, delete orphan files.

    Without tables, it maintains those whose options `table.datalake.auto-compaction` and
    `table.datalake.auto-expire-snapshot` ask for it. Rounds and readers may run at the same time. The task fails for a
    table that is named and has no lake table yet.

    Args:
        tables: The `database.table` of each table, which is maintained whatever its options say. None for the tables
            whose options ask for it. (templated)
        all_tables: Whether all tables that are tiered are maintained, if none is named.
        max_bytes: The largest size of the data files of a table that are rewritten in this run, as a number
            of bytes or a text such as "10gb". (templated)
        cores: About how many tasks rewrite data files at the same time. (templated)
        min_input_files: The smallest number of small files in a bucket that is worth rewriting. (templated)
        delete_files: The number of delete files that must apply to a data file, so that it is rewritten at any size.
            (templated)
        kwargs: `fluss_conn_id`, the connection of the tiering server; `conn_id`, the Spark connection;
            `submit`, another `Way` to submit; other arguments of `SparkSubmitOperator`.
    """

    command = "maintain"
    kind = MaintainOptions
    template_fields: Sequence[str] = (
        *FlussMaintenanceOperator.template_fields,
        "max_bytes",
        "cores",
        "min_input_files",
        "delete_files",
    )

    def __init__(
        self,
        *,
        tables: Sequence[str] | None = None,
        all_tables: bool = False,
        max_bytes: int | str = DEFAULT_MAX_BYTES,
        cores: int | str = DEFAULT_CORES,
        min_input_files: int | str = DEFAULT_MIN_INPUT_FILES,
        delete_files: int | str = DEFAULT_MANY_DELETE_FILES,
        **kwargs: Any,
    ) -> None:
        super().__init__(tables=(), **kwargs)
        self.tables = tables
        self.all_tables = all_tables
        self.max_bytes = max_bytes
        self.cores = cores
        self.min_input_files = min_input_files
        self.delete_files = delete_files

    def _paths(self) -> tuple[TablePath, ...]:
        # An empty list comes from a task before this one, which found no table.
        return () if self.tables is None else super()._paths()


class FlussCompactOperator(FlussMaintenanceOperator):
    """Compact lake tables: rewrite small files, and files whose rows were deleted or changed.

    Rounds and readers may run at the same time. The old files stay until their snapshots are expired.

    Args:
        tables: The `database.table` of each table. (templated)
        min_input_files: The smallest number of small files in a bucket that is worth rewriting. (templated)
        delete_files: The number of delete files that must apply to a data file, so that it is rewritten at any size.
            (templated)
        kwargs: `fluss_conn_id`, the connection of the tiering server; `conn_id`, the Spark connection;
            `submit`, another `Way` to submit; other arguments of `SparkSubmitOperator`.
    """

    command = "compact"
    kind = CompactOptions
    template_fields: Sequence[str] = (*FlussMaintenanceOperator.template_fields, "min_input_files", "delete_files")

    def __init__(
        self,
        *,
        tables: Sequence[str],
        min_input_files: int | str = DEFAULT_MIN_INPUT_FILES,
        delete_files: int | str = DEFAULT_DELETE_FILES,
        **kwargs: Any,
    ) -> None:
        super().__init__(tables=tables, **kwargs)
        self.min_input_files = min_input_files
        self.delete_files = delete_files


class FlussExpireSnapshotsOperator(FlussMaintenanceOperator):
    """Remove old snapshots of lake tables, and the files that only those snapshots refer to.

    The snapshot that is registered at the server and every later one are kept, because readers of Fluss and the
    recovery of rounds need them. Rounds may run at the same time.

    Args:
        tables: The `database.table` of each table. (templated)
        older_than: The minimum age of a snapshot, as a timedelta or as a text such as "2d". None takes it from the
            properties of the lake table (5 days). (templated)
        retain_last: The number of newest snapshots to keep at any age. None takes it from the properties of the lake
            table (1). (templated)
        kwargs: `fluss_conn_id`, the connection of the tiering server; `conn_id`, the Spark connection;
            `submit`, another `Way` to submit; other arguments of `SparkSubmitOperator`.
    """

    command = "expire-snapshots"
    kind = ExpireOptions
    template_fields: Sequence[str] = (*FlussMaintenanceOperator.template_fields, "older_than", "retain_last")

    def __init__(
        self,
        *,
        tables: Sequence[str],
        older_than: timedelta | str | None = None,
        retain_last: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(tables=tables, **kwargs)
        self.older_than = older_than
        self.retain_last = retain_last


class FlussVerifyOperator(FlussMaintenanceOperator):
    """Compare lake tables with their source tables, and fail if one differs or if nothing of it was tiered yet.

    The rows up to the offsets that the lake holds are compared. Nothing is locked, and writes may go on. The log of the
    task lists the keys that differ.

    Args:
        tables: The `database.table` of each table. (templated)
        limit: The maximum number of differing keys of each table to list. (templated)
        newer_than: Compare only the rows that newer rounds than this have added to log tables, as a timedelta or as a
            text such as "2d". None compares all rows. (templated)
        kwargs: `fluss_conn_id`, the connection of the tiering server; `conn_id`, the Spark connection;
            `submit`, another `Way` to submit; other arguments of `SparkSubmitOperator`.
    """

    command = "verify"
    kind = VerifyOptions
    template_fields: Sequence[str] = (*FlussMaintenanceOperator.template_fields, "limit", "newer_than")

    def __init__(
        self,
        *,
        tables: Sequence[str],
        limit: int | str = DEFAULT_LIMIT,
        newer_than: timedelta | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(tables=tables, **kwargs)
        self.limit = limit
        self.newer_than = newer_than


class FlussPublishOperator(FlussMaintenanceOperator):
    """Let the readers of lake tables see what rounds have committed to the branch `table.datalake.commit-branch`.

    Main moves forward in one commit, and Fluss is told of it. Rounds may run at the same time. To publish again what
    was published changes nothing, so that a retry is safe.

    Args:
        tables: The `database.table` of each table. (templated)
        snapshot: The snapshot that the checks have passed, if `tables` has one table, for example
            `"{{ ti.xcom_pull('tier')[0]['lake_snapshot_id'] }}"`. None, also as a text, is the newest one of the
            branch, whether it was checked or not. (templated)
        tag: A tag for the snapshot, which keeps it from being expired, for example `"{{ ds }}"`. (templated)
        kwargs: `fluss_conn_id`, the connection of the tiering server; `conn_id`, the Spark connection;
            `submit`, another `Way` to submit; other arguments of `SparkSubmitOperator`.
    """

    command = "publish"
    kind = PublishOptions
    template_fields: Sequence[str] = (*FlussMaintenanceOperator.template_fields, "snapshot", "tag")

    def __init__(
        self,
        *,
        tables: Sequence[str],
        snapshot: int | str | None = None,
        tag: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(tables=tables, **kwargs)
        self.snapshot = snapshot
        self.tag = tag


def _value(option: Option, value: object) -> Any:  # noqa: ANN401 - as the option's type says
    """Return the value of an argument as the option takes it: a template makes texts of numbers, and of no number."""
    if option.is_flag or (value is None and option.default is None):
        return value
    if option.type is int:
        return None if option.default is None and value in ("", "None") else whole_number(option.name, value)
    return f"{duration_ms(option.name, value)}ms" if isinstance(value, timedelta) else str(value)
