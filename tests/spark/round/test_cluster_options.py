"""Options that are ours, not Fluss's, of tables of a cluster."""

from __future__ import annotations

import pytest
from spark_support import Tiering, named

from engine_support import descriptor, new_path
from fluss_tiering.cli.main import app
from fluss_tiering.client import finish_unchanged_tables
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.table_options import max_round_duration_ms
from fluss_tiering.spark.maintenance.publish import publish_table
from waiting import wait_until

OPTION = "fluss.table.datalake.delete-files"


@pytest.mark.slow
@pytest.mark.system
def test_a_table_of_a_cluster_chooses_how_its_rounds_delete(cluster: Tiering) -> None:
    options = {
        "table.datalake.enabled": "true",
        "table.datalake.freshness": "1s",
        OPTION: "equality",
        "fluss.table.datalake.max-round-duration": "1h",
    }
    table = cluster.client.create_table(new_path(), descriptor(properties=options))
    files = f"{table.lake_catalog_properties['name']}.{table.path}.files"

    def kinds() -> set[int]:
        """Return the kinds of files: 0 for data, 1 for position deletes, 2 for equality deletes."""
        return {row.content for row in cluster.spark.sql(f"SELECT content FROM {files}").collect()}

    (listed,) = cluster.client.get_tables([table.path])
    assert max_round_duration_ms(listed.descriptor.properties) == 3_600_000
    for names in ("first", "second"):
        cluster.round(table, named(range(8), names), claim_timeout_s=60)
    assert kinds() == {0, 2}

    altered = cluster.client.alter_table(table.path, set_properties={OPTION: "position"})
    cluster.write(table, named(range(8), "third"))
    cluster.tier(altered, claim_timeout_s=60)
    assert kinds() == {0, 1, 2}
    lake = cluster.spark.table(f"{table.lake_catalog_properties['name']}.{table.path}")
    assert dict(lake.select("id", "name").collect()) == named(range(8), "third")


@pytest.mark.slow
@pytest.mark.system
def test_a_cluster_is_told_of_published_snapshots_only(cluster: Tiering) -> None:
    options = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
    options["fluss.table.datalake.commit-branch"] = "audit"
    table = cluster.client.create_table(new_path(), descriptor(properties=options))
    cluster.round(table, named(range(8), "first"), claim_timeout_s=60)
    name = cluster.name(table)
    assert cluster.spark.table(name).count() == 0
    assert cluster.client.lake_snapshot(table.path) is None

    done = publish_table(cluster.client, cluster.spark, table, tag="checked")

    assert (done.error, done.rounds, done.known) == (None, 1, True)
    cluster.round(table, named(range(4), "second"), claim_timeout_s=60)
    assert dict(cluster.spark.table(name).select("id", "name").collect()) == named(range(8), "first")
    known = cluster.client.lake_snapshot(table.path)
    assert known is not None
    assert known.snapshot_id == done.snapshot_id


def finished(cluster: Tiering, table: TableInfo) -> bool:
    """Return whether the table had a round without Spark."""
    return table.path in finish_unchanged_tables(cluster.client, cluster.client.list_tiering_statuses(table.path))


@pytest.mark.slow
@pytest.mark.system
def test_a_table_that_was_switched_on_again_has_a_round_that_looks_at_its_lake_table(cluster: Tiering) -> None:
    options = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
    table = cluster.client.create_table(new_path(), descriptor(primary_key=False, properties=options))
    lake = cluster.name(table)
    cluster.round(table, named(range(8), "first"), claim_timeout_s=60)
    wait_until(lambda: finished(cluster, table), describe=lambda: "the table was not due again")

    # Fluss makes an empty lake table when tiering is switched on and there is none of this name.
    off = cluster.client.alter_table(table.path, set_properties={"table.datalake.enabled": "false"})
    # The cluster names a lake catalog only for tables that are tiered.
    assert off.lake_catalog_properties == {}
    with pytest.raises(FlussTieringError, match="its tiering is switched off"):
        app(["lake-conf", str(table.path), "--server", cluster.target])
    cluster.spark.sql(f"ALTER TABLE {lake} RENAME TO {table.path}_before")
    altered = cluster.client.alter_table(table.path, set_properties={"table.datalake.enabled": "true"})
    assert cluster.lake_rows(altered) == []
    assert not finished(cluster, altered)
    (refused,) = cluster.tier_all(altered, claim_timeout_s=60)
    assert refused.error is not None
    assert "does not hold the snapshot" in refused.error

    # So tiering is switched on again without a loss: see docs/how-to/connect-a-cluster.md.
    cluster.spark.sql(f"DROP TABLE {lake}")
    cluster.spark.sql(f"ALTER TABLE {lake}_before RENAME TO {table.path}")
    cluster.client.resume_tables([table.path])
    cluster.write(table, named(range(8, 10), "second"))
    cluster.tier(altered, claim_timeout_s=60)
    assert cluster.lake_rows(altered) == sorted((named(range(8), "first") | named(range(8, 10), "second")).items())
