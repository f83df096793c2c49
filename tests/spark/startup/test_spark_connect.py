"""Sessions of Spark Connect, in which there is no JVM to plan and commit with."""

from __future__ import annotations

import pytest

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.spark import application, maintenance_application
from fluss_tiering.spark.maintenance_options import CompactOptions
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.spark.startup.session import own_session


# E25
def test_spark_connect_is_refused_before_anything_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    table = TablePath.parse("db.t")
    for run, options in (
        (application.run, TierOptions(server="127.0.0.1:1", tables=(table,))),
        (maintenance_application.run, CompactOptions(server="127.0.0.1:1", tables=(table,))),
    ):
        with pytest.raises(FlussTieringError, match="the Spark session is one of Spark Connect, but rounds") as refused:
            run(options, session)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(FlussTieringError, match="the master is sc://host:15002, but"), own_session("sc://host:15002"):
        pass
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "sc://host")
            with pytest.raises(FlussTieringError, match=f"{name} is set, but"), own_session("local[1]"):
                pass
