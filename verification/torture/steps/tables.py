"""Steps beside writes and rounds: KV snapshots, options, columns, partitions, shorter logs, and server restarts."""

from __future__ import annotations

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from torture.faults.logs import cut_first_batch
from torture.judging.checks import WrongError
from torture.makers.columns import changed_columns
from torture.makers.disturbances import ENABLED
from torture.makers.rows import partition_values
from torture.plan import Step
from torture.steps.rounds import tier_tables
from torture.steps.running import Running
from torture.steps.writes import write

_TRIES_TO_WRITE = 5
"""A random row may be refused, for example one with a time that the lake cannot hold."""


def snapshot(run: Running, step: Step) -> None:
    """Take KV snapshots of a table."""
    run.world.client.take_kv_snapshots([run.infos[step["table"]].path])


def cut_log(run: Running, step: Step) -> None:
    """Cut the beginning off the log of a table that has one bucket and was never tiered, unless a cluster has it."""
    name = step["table"]
    if run.world.cluster is not None:
        return
    run.world.servers.stop()
    rows = cut_first_batch(run.world.servers.data_dir, run.infos[name])
    run.world.servers.start()
    if rows and not run.planned(name).primary_key:
        run.models[name].lost(rows)
        run.tally.counts["logs that begin later"] += 1


def drop_partition(run: Running, step: Step) -> None:
    """Drop a partition of which everything is in the lake."""
    name = step["table"]
    if run.models[name].pending:
        tier_tables(run, [name], step, None)
    values = partition_values(run.planned(name), step["partition"])
    run.world.client.drop_partition(run.infos[name].path, values, ignore_if_not_exists=True)
    run.models[name].dropped(values)


def alter(run: Running, step: Step) -> None:
    """Change options of a table."""
    if run.world.cluster is not None and step.get("set", {}).get(ENABLED) == "false":
        run.tally.left_out["Fluss 0.9.1 does not switch tiering on again: the Iceberg table exists"] += 1
        return
    path = run.infos[step["table"]].path
    run.infos[step["table"]] = run.world.client.alter_table(path, step.get("set", {}), step.get("reset", ()))


def alter_columns(run: Running, step: Step) -> None:
    """Change columns of a table, write rows with them, and tier these."""
    name, seed = step["table"], step["seed"]
    planned, client = run.planned(name), run.world.client
    changes, altered, places = changed_columns(planned, seed)
    try:
        run.infos[name] = client.alter_table(run.infos[name].path, column_changes=changes)
    except FlussTieringError as error:
        if error.code is not ErrorCode.INVALID_TABLE:
            raise WrongError("columns cannot be changed", error.message) from error
        run.tally.refused[f"columns: {error.message[:110]}"] += 1
        return
    run.altered[name] = altered
    run.models[name].altered(altered, places)
    run.tally.counts["changes of columns"] += len(changes)
    kind = "upsert" if planned.primary_key else "append"
    # The lake table follows in a round with rows.
    for number in range(_TRIES_TO_WRITE):
        if number and run.models[name].pending:
            break
        write(run, {"table": name, "kind": kind, "rows": 5, "seed": seed + number, "keys": [0, 60]})
    tier_tables(run, [name], step, step.get("fault"))


def server(run: Running, step: Step) -> None:
    """Restart the server, in order or after SIGKILL."""
    if step["what"] == "restart":
        run.world.servers.stop()
    else:
        run.world.servers.kill()
    run.world.servers.start()
