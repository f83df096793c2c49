"""What rounds read and wrote, for OpenLineage: a Fluss table as the input, and its lake table as the output.

Datasets are named as the naming conventions of OpenLineage say. A Fluss table is `database.table` in the namespace
`fluss://HOST:PORT`, with the first bootstrap server of its cluster, or with the tiering server if that keeps the table
itself. A lake table is the place of its files with its catalog's name for it as a symlink, or `database.table` of its
catalog.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fluss.assets.table import host_and_port
from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.lease import LeaseHandle
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import StorageDescription, TableInfo
from fluss_tiering.model.tiering import TieringRound, TieringState

if TYPE_CHECKING:
    from airflow.providers.common.compat.openlineage.facet import Dataset, OutputDataset
    from airflow.providers.openlineage.extractors import OperatorLineage

CALL_TIMEOUT_SECONDS: Final = 5.0
_OBJECT_STORES: Final = {"s3a": "s3", "s3n": "s3", "s3": "s3", "gs": "gs"}
_OF_CONTAINERS: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Schemes of Azure, whose addresses have the container where others have a login."""


class LeaseLineage:
    """Tell OpenLineage about the rounds under the lease of a task. Operators that wait for rounds have this base."""

    lease: object

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ANN401
        """Return what the rounds read and wrote. OpenLineage's provider calls this after the task has succeeded."""
        return lineage_of_lease(LeaseHandle.from_xcom(self.lease, task_instance.dag_id, task_instance.run_id))


def lineage_of_lease(lease: LeaseHandle) -> OperatorLineage[Any, Any]:
    """Return what the rounds under a lease read and wrote. A table that was not tiered is left out.

    Raises:
        FlussTieringError: UNAVAILABLE if the server cannot be reached.
        ValueError: The connection is not usable.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415 - an optional dependency

    inputs: list[Dataset] = []
    outputs: list[Dataset] = []
    hook = FlussHook(lease.fluss_conn_id, timeout=CALL_TIMEOUT_SECONDS)
    with hook.get_client() as client:
        storage = client.describe_storage()
        for each in client.lease_outcome(lease.lease_id, lease.attempt_token).rounds:
            if each.state is not TieringState.TIERED:
                continue
            try:
                (table,) = client.get_tables([each.path])
            except FlussTieringError:
                continue  # The table was dropped after its round.
            source = fluss_dataset(table, storage, hook.get_address())
            inputs.append(source)
            outputs.append(lake_dataset(table, each, source))
    return OperatorLineage(inputs=inputs, outputs=outputs)


def fluss_dataset(table: TableInfo, storage: StorageDescription, server: str) -> Dataset:
    """Return a Fluss table as a dataset with its schema.

    Args:
        table: The table.
        storage: The storage of the server.
        server: The address of the server as `host:port`.
    """
    from airflow.providers.common.compat.openlineage.facet import Dataset  # noqa: PLC0415

    address = storage.bootstrap_servers.split(",")[0] or host_and_port(server)
    return Dataset(namespace=f"fluss://{address}", name=str(table.path), facets={"schema": _schema(table)})


def lake_dataset(table: TableInfo, tiered: TieringRound, source: Dataset) -> OutputDataset:
    """Return the lake table of a round as a dataset: schema, lineage of columns, version, and what the round wrote.

    Args:
        table: The table.
        tiered: The round.
        source: The dataset that the round read.
    """
    from airflow.providers.common.compat.openlineage.facet import (  # noqa: PLC0415
        ColumnLineageDatasetFacet,
        Fields,
        Identifier,
        InputField,
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
        SymlinksDatasetFacet,
    )
    from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet  # noqa: PLC0415

    columns = {
        each.name: Fields(inputFields=[InputField(namespace=source.namespace, name=source.name, field=each.name)])
        for each in table.descriptor.columns
    }
    facets: dict[str, Any] = {"schema": _schema(table), "columnLineage": ColumnLineageDatasetFacet(fields=columns)}
    namespace, name, symlink = lake_names(table.lake_catalog_properties, str(table.lake_path))
    if symlink is not None:
        identifier = Identifier(namespace=symlink, name=str(table.lake_path), type="TABLE")
        facets["symlinks"] = SymlinksDatasetFacet(identifiers=[identifier])
    written: dict[str, Any] = {}
    if stats := tiered.stats:
        if stats.lake_snapshot_id is not None:
            facets["version"] = DatasetVersionDatasetFacet(datasetVersion=str(stats.lake_snapshot_id))
        written["outputStatistics"] = OutputStatisticsOutputDatasetFacet(
            rowCount=stats.rows, size=stats.bytes, fileCount=stats.files
        )
    return OutputDataset(namespace=namespace, name=name, facets=facets, outputFacets=written)


def lake_names(catalog: Mapping[str, str], table: str) -> tuple[str, str, str | None]:
    """Return the namespace and the name of a lake table, and the namespace of its catalog as its symlink.

    The name is the place of the table's files if the catalog decides it by the warehouse, as Hadoop's and JDBC's do.
    Otherwise the catalog names the table, and there is no symlink.

    Args:
        catalog: The properties of the lake catalog.
        table: The `database.table` of the lake table.
    """
    uri, warehouse, kind = catalog.get("uri", ""), catalog.get("warehouse", ""), catalog.get("type", "").lower()
    if kind == "hive" and uri:
        return f"hive://{urllib.parse.urlsplit(uri.split(',')[0]).netloc}", table, None
    if kind == "rest" and uri:
        return _without_secrets(uri), table, None
    namespace, path = _place(f"{_without_secrets(warehouse).rstrip('/')}/{table.replace('.', '/')}")
    return namespace, path, _without_secrets(uri or warehouse) or None


def _place(location: str) -> tuple[str, str]:
    """Return the namespace and the name of a folder, as OpenLineage has them for file systems and object stores."""
    parts = urllib.parse.urlsplit(location)
    if parts.scheme in _OBJECT_STORES:
        return f"{_OBJECT_STORES[parts.scheme]}://{parts.netloc}", parts.path.lstrip("/")
    if parts.scheme in {"", "file"}:
        return f"file://{parts.netloc}" if parts.netloc else "file", parts.path
    return f"{parts.scheme}://{parts.netloc}", parts.path


def _without_secrets(uri: str) -> str:
    """Return an address without its query and without a user, which may hold a password."""
    address = uri.partition("?")[0]
    scheme, separator, rest = address.partition("://")
    if not separator or scheme in _OF_CONTAINERS:
        return address
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _schema(table: TableInfo) -> Any:  # noqa: ANN401 - a facet, whose class is imported late
    from airflow.providers.common.compat.openlineage.facet import (  # noqa: PLC0415
        SchemaDatasetFacet,
        SchemaDatasetFacetFields,
    )

    return SchemaDatasetFacet(
        fields=[SchemaDatasetFacetFields(name=each.name, type=str(each.data_type)) for each in table.descriptor.columns]
    )
