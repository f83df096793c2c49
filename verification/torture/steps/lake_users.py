"""Steps of somebody who uses the lake table: properties, columns, deleted rows, and maintenance."""

from __future__ import annotations

import time
from typing import Any, Final

import judges
from fluss_tiering.model.data_type import DataTypeRoot
from fluss_tiering.model.table_options import LAKE_RECORD_EXPIRE_TIME, LAKE_RECORD_TIME_FIELD
from torture.judging.checks import WrongError
from torture.judging.limits import table_limit
from torture.plan import Step
from torture.processes import CommandFailedError
from torture.steps.checking import check
from torture.steps.deletes import delete_statement
from torture.steps.rounds import class_of
from torture.steps.running import Running

_TIMES: Final = (DataTypeRoot.DATE, DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ)
_DAYS: Final = 3650
_DAY_US: Final = 86_400_000_000


def set_property(run: Running, step: Step) -> None:
    """Set a property of a lake table."""
    _alter(run, step["table"], f"SET TBLPROPERTIES ('{step['key']}' = '{step['value']}')")


def change_schema(run: Running, step: Step) -> None:
    """Add a column to a lake table, move one, or widen one: `change` is what follows ALTER TABLE."""
    if _alter(run, step["table"], step["change"]):
        if any(word in step["change"] for word in (" FIRST", " AFTER ", " TYPE ")):
            run.rearranged.add(step["table"])
        check(run, step["table"], seed=step["seed"])


def delete_rows(run: Running, step: Step) -> None:
    """Delete rows of a lake table, by copies of its files or by positions."""
    name = step["table"]
    chosen = delete_statement(run, name, step["seed"]) if name in run.lake_exists else None
    if chosen is None or not _alter(run, name, f"SET TBLPROPERTIES ('write.delete.mode' = '{step['mode']}')"):
        return
    question, text = chosen
    answer = run.world.call("change", table=run.path(name), text=text)
    if answer["error"]:
        run.tally.refused[f"DELETE by Spark: {class_of(answer['error'])[:90]}"] += 1
    else:
        run.models[name].deleted_in_lake(question.holds)
        run.tally.counts[f"DELETE, {step['mode']}"] += 1
    check(run, name, seed=step["seed"])


def maintain(run: Running, step: Step) -> None:
    """Compact a lake table, expire its snapshots, or look for orphans."""
    name = step["table"]
    if name not in run.lake_exists:
        return
    answer: dict[str, Any] = run.world.call("maintain", table=run.path(name), what=step["what"])
    if answer["error"] and not _is_known_limit(run, name, step["what"], answer["error"]):
        raise WrongError(f"{step['what']} fails", answer["error"])
    check(run, name, seed=0)


def retain(run: Running, step: Step) -> None:
    """Let the records leave a lake table that one of its columns calls old."""
    name, typed = step["table"], run.planned(step["table"]).typed
    times = [place for place, column in enumerate(typed) if column.data_type.root in _TIMES]
    if name not in run.lake_exists or run.world.cluster is not None or not times:
        return
    limit = table_limit(judges.SPARK, typed, has_deletes=True, keys={})
    if limit is not None:
        run.tally.left_out[limit] += 1
        return
    place = times[step["column"] % len(times)]
    options = {LAKE_RECORD_EXPIRE_TIME.key: f"{_DAYS} d", LAKE_RECORD_TIME_FIELD.key: typed[place].name}
    path = run.infos[name].path
    run.world.client.alter_table(path, options)
    answer: dict[str, Any] = run.world.call("maintain", table=run.path(name), what="records")
    run.infos[name] = run.world.client.alter_table(path, {}, list(options))
    if answer["error"]:
        raise WrongError("a retention fails", answer["error"])
    oldest = int(time.time()) // 86_400 - _DAYS
    if typed[place].data_type.root is not DataTypeRoot.DATE:
        oldest *= _DAY_US
    run.models[name].deleted_in_lake(lambda row: row[place] is not None and row[place] < oldest)
    run.tally.counts["retentions"] += 1
    check(run, name, seed=0)


def _alter(run: Running, name: str, change: str) -> bool:
    """Alter a lake table if it exists, and return whether Iceberg has done it."""
    if name not in run.lake_exists:
        return False
    try:
        run.world.call("sql", table=run.path(name), text=f"ALTER TABLE {{table}} {change}")
    except CommandFailedError as error:
        run.tally.refused[f"by Iceberg: {class_of(str(error))[:90]}"] += 1
        return False
    return True


def _is_known_limit(run: Running, name: str, what: str, error: str) -> bool:
    if "S3Object.size()" in error:
        # Files that are being written have other names in its folder, and are gone before it asks for their size.
        run.tally.left_out["S3Proxy lists objects without a size while they are written"] += 1
        return True
    if what == "compact" and any("TIME(" in text for _, text in run.planned(name).columns):
        run.tally.left_out["Spark compacts no table with TIME"] += 1
        return True
    return False
