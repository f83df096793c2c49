"""How many tasks run at once, which snapshots are measured first, and which lost parts of logs an error names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from engine_support import table_info
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import BucketInfo, KvSnapshot, TableBucket, TableInfo
from fluss_tiering.spark.round import stage as module
from fluss_tiering.spark.round.lost_log import LostLog, lost_error
from fluss_tiering.spark.round.stage import Parallelism
from fluss_tiering.storage.reading import measured


def test_a_session_on_one_machine_waits_for_nobody(spark):
    assert Parallelism(spark.sparkContext)() == spark.sparkContext.defaultParallelism


class Settings:
    """Spark's settings as the JVM has them. It takes texts only, and one for a setting that may not be there."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = known

    def get(self, key: str, otherwise: str) -> str:
        assert isinstance(otherwise, str)
        return self._known.get(key, otherwise)


class Application:
    """An application whose executors register at the given seconds, on a clock that only sleeping moves.

    It is its own Spark context, status tracker and clock.
    """

    def __init__(self, master: str, registering: Sequence[float] = (), **settings: str) -> None:
        self.master = master
        self.now = 1000.0
        self._registering = [1000.0 + second for second in registering]
        self._conf = Settings({f"spark.{key.replace('_', '.')}": value for key, value in settings.items()})
        self._jsc = self

    def conf(self) -> Settings:
        return self._conf

    @property
    def defaultParallelism(self) -> int:  # noqa: N802 - Spark's name, as below
        """Spark counts the cores that have registered, four of each executor here."""
        return 4 * (len(self.getExecutorInfos()) - 1)

    def sc(self) -> Application:
        return self

    def statusTracker(self) -> Application:  # noqa: N802
        return self

    def getExecutorInfos(self) -> list[float]:  # noqa: N802
        return [0.0, *(second for second in self._registering if second <= self.now)]

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    @property
    def waited_s(self) -> float:
        return round(self.now - 1000, 1)


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch):
    """Return how many tasks run at the same time in an application."""

    def of(application: Application) -> int:
        monkeypatch.setattr(module, "time", application)
        return Parallelism(cast("Any", application))()

    return of


# D52
@pytest.mark.parametrize(
    ("registering", "expected", "waited_s"),
    [
        ([0], 4, 1.0),
        ([2.5, 3.2, 4.1], 12, 5.1),
        ([2.5, 3.2, 9.0], 8, 4.2),
        ([29.5], 4, 30.0),
        ([31.0], 1, 30.0),
    ],
    ids=["at once", "one after the other", "one much later", "at the last moment", "never"],
)
def test_executors_are_waited_for_until_no_more_of_them_register(tasks, registering, expected, waited_s):
    application = Application("spark://master:7077", registering)
    assert tasks(application) == expected
    assert application.waited_s == pytest.approx(waited_s, abs=0.3)


def test_executors_are_waited_for_once(monkeypatch):
    application = Application("yarn", [90.0])
    monkeypatch.setattr(module, "time", application)
    parallelism = Parallelism(cast("Any", application))
    assert [parallelism() for _ in range(3)] == [1, 1, 1]
    assert application.waited_s == pytest.approx(30, abs=0.3)
    application.sleep(70)
    assert parallelism() == 4, "those that came later count"


# D52
@pytest.mark.parametrize(
    ("master", "settings", "expected"),
    [
        ("yarn", {"executor_instances": "6", "executor_cores": "2"}, 12),
        ("yarn", {"executor_instances": "6", "executor_cores": "4", "task_cpus": "3"}, 8),
        ("yarn", {"executor_instances": "6", "executor_cores": "3", "task_cpus": "4"}, 4),
        ("yarn", {"executor_instances": "6"}, 6),
        ("k8s://cluster", {"dynamicAllocation_enabled": "true", "dynamicAllocation_maxExecutors": "20"}, 20),
        (
            "yarn",
            {
                "dynamicAllocation_enabled": "true",
                "dynamicAllocation_maxExecutors": "20",
                "executor_instances": "2",
                "executor_cores": "3",
            },
            60,
        ),
        ("yarn", {"dynamicAllocation_maxExecutors": "20", "executor_instances": "2", "executor_cores": "3"}, 6),
        ("spark://master:7077", {"executor_instances": "6", "executor_cores": "2"}, 12),
    ],
)
def test_executors_that_the_settings_name_are_not_waited_for(tasks, master, settings, expected):
    application = Application(master, **settings)
    found = tasks(application)
    assert found == expected
    assert isinstance(found, int)
    assert application.waited_s == 0


@pytest.mark.parametrize(
    ("master", "settings"),
    [
        # An executor of a standalone cluster takes all cores of its machine, unless it is told how many.
        ("spark://master:7077", {"executor_instances": "6"}),
        ("yarn", {"dynamicAllocation_enabled": "true", "executor_instances": "6"}),
        ("yarn", {"executor_cores": "2"}),
    ],
)
def test_without_a_number_in_the_settings_executors_are_waited_for(tasks, master, settings):
    application = Application(master, [1.0, 1.1], **settings)
    assert tasks(application) == 8
    assert application.waited_s > 1


def test_more_executors_than_the_settings_name_count_as_well(tasks):
    assert tasks(Application("yarn", [0.0, 0.0], executor_instances="1", executor_cores="4")) == 8


def test_a_machine_without_executors_runs_one_task_and_does_not_wait(tasks):
    application = Application("local[1]")
    assert tasks(application) == 1
    assert application.waited_s == 0


TABLE = table_info(7)


def snapshot(number: int, rows: int) -> KvSnapshot:
    return KvSnapshot(TableBucket(7, number), 3, 10, rows, 0 if rows < 0 else 500, "kv/3")


class Reader:
    """Knows the size of the files of each bucket's snapshot."""

    def measure_kv_snapshot(self, table: TableInfo, of: KvSnapshot) -> KvSnapshot:
        assert table is TABLE
        number = of.bucket.bucket
        if number == 99:
            raise FlussTieringError(ErrorCode.KV_SNAPSHOT_NOT_EXIST, "gone")
        return replace(of, size_bytes=1000 + number, split_keys=(bytes([number]),))


def test_each_snapshot_of_a_cluster_gets_its_own_size_and_keys():
    snapshots = {each.bucket: each for each in (snapshot(number, -1) for number in range(30))}

    sized = measured(lambda: cast("Any", Reader()), TABLE, snapshots)

    assert list(sized) == list(snapshots)
    for bucket, each in sized.items():
        assert each == replace(snapshots[bucket], size_bytes=1000 + bucket.bucket, split_keys=(bytes([bucket.bucket]),))


def test_snapshots_of_known_size_are_not_looked_at():
    def never() -> Any:
        raise AssertionError("opening a reader connects to the cluster")

    snapshots = {each.bucket: each for each in (snapshot(0, 0), snapshot(1, 12))}
    assert measured(never, TABLE, snapshots) == snapshots
    assert measured(never, TABLE, {}) == {}


def test_a_snapshot_that_is_gone_fails_the_round():
    snapshots = {each.bucket: each for each in (snapshot(1, -1), snapshot(99, -1))}
    with pytest.raises(FlussTieringError, match="gone") as failed:
        measured(lambda: cast("Any", Reader()), TABLE, snapshots)
    assert failed.value.code is ErrorCode.KV_SNAPSHOT_NOT_EXIST


def bucket(number: int) -> TableBucket:
    return TableBucket(7, number)


def info(number: int, start: int, values: tuple[str, ...] = ()) -> BucketInfo:
    return BucketInfo(bucket(number), start, 20, 0, partition_values=values)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("key", [True, False])
def test_an_error_names_three_buckets_and_counts_the_others(count: int, key: bool):
    error = lost_error([LostLog(info(number, 10 + number), number) for number in range(count)], has_primary_key=key)
    assert error.code is ErrorCode.LOG_OFFSET_OUT_OF_RANGE
    assert "--skip-missing-log" in error.message
    assert ("KV snapshots" in error.message) is key
    for number in range(count):
        named = f"bucket {number} of table 7: offsets {number} to {9 + number}"
        assert (named in error.message) is (number < 3)
    last, others = min(count, 3) - 1, {4: " and in 1 more bucket", 6: " and in 3 more buckets"}.get(count, "")
    assert f"offsets {last} to {9 + last}{others}: expected it to be kept until then" in error.message


def test_a_bucket_of_a_partition_is_named_with_the_partition():
    assert "(monday, 7): offsets 3 to 4" in str(LostLog(info(0, 5, ("monday", "7")), 3))
    assert str(LostLog(info(0, 5), 3)) == f"{bucket(0)}: offsets 3 to 4"
