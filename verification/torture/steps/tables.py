"""Steps beside writes and rounds: KV snapshots, options, partitions, logs that begin later, and server restarts."""

from __future__ import annotations

from torture.faults.logs import cut_first_batch
from torture.makers.disturbances import ENABLED
from torture.makers.rows import partition_values
from torture.plan import Step
from torture.steps.rounds import tier_tables
from torture.steps.running import Running


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


def server(run: Running, step: Step) -> None:
    """Restart the server, in order or after SIGKILL."""
    if step["what"] == "restart":
        run.world.servers.stop()
    else:
        run.world.servers.kill()
    run.world.servers.start()
