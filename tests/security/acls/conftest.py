"""A Fluss cluster with ACLs, which the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from guarded_cluster import GuardedCluster, settings

from fluss_java_client import FlussJavaClient
from fluss_support import FlussCluster
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from needs import needs
from waiting import WAIT_S


@pytest.fixture(scope="session")
@needs("cluster")
def guarded(fluss_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedCluster]:
    """A cluster with ACLs and one tablet server."""
    folder = tmp_path_factory.mktemp("guarded-fluss")
    catalog = f"guarded_lake_{fluss_version.replace('.', '_')}"
    options = {**settings(), "datalake.iceberg.name": catalog}
    with (
        FlussCluster(folder, version=fluss_version, tablet_servers=1, settings=options) as cluster,
        FlussClient(cluster.bootstrap, timeout=WAIT_S) as admin,
        FlussJavaClient(tmp_path_factory.mktemp("guarded-java"), cluster.bootstrap) as java,
    ):
        cluster.lake_catalog["name"] = catalog
        yield GuardedCluster(cluster, admin, java)
