"""The calls of Fluss's protocol that this client makes (`org.apache.fluss.rpc.protocol.ApiKeys`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, unique
from typing import Final

from fluss_tiering.api.fluss.v1.connection_pb2 import ApiVersionsResponse
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

SUPPORTED_VERSIONS: Final = ("0.9.1", "1.0")
"""The versions of Fluss that the project is tested with."""


@unique
class ApiKey(IntEnum):
    """The kind of a request."""

    API_VERSIONS = 1000
    CREATE_DATABASE = 1001
    DROP_DATABASE = 1002
    LIST_DATABASES = 1003
    CREATE_TABLE = 1005
    DROP_TABLE = 1006
    GET_TABLE_INFO = 1007
    LIST_TABLES = 1008
    LIST_PARTITION_INFOS = 1009
    GET_TABLE_SCHEMA = 1011
    GET_METADATA = 1012
    PRODUCE_LOG = 1014
    FETCH_LOG = 1015
    PUT_KV = 1016
    LIST_OFFSETS = 1021
    GET_LATEST_KV_SNAPSHOTS = 1023
    GET_KV_SNAPSHOT_METADATA = 1024
    COMMIT_LAKE_TABLE_SNAPSHOT = 1030
    GET_LAKE_SNAPSHOT = 1032
    GET_DATABASE_INFO = 1035
    CREATE_PARTITION = 1036
    DROP_PARTITION = 1037
    AUTHENTICATE = 1038
    LAKE_TIERING_HEARTBEAT = 1042
    ALTER_TABLE = 1044
    PREPARE_LAKE_TABLE_SNAPSHOT = 1052
    ACQUIRE_KV_SNAPSHOT_LEASE = 1056
    RELEASE_KV_SNAPSHOT_LEASE = 1057
    DROP_KV_SNAPSHOT_LEASE = 1058
    SCAN_KV = 1061

    @property
    def versions(self) -> tuple[int, int]:
        """The lowest and the highest version of the request that this client can send."""
        return _VERSIONS.get(self, (0, 0))


_VERSIONS: Final = {ApiKey.PUT_KV: (1, 2), ApiKey.GET_KV_SNAPSHOT_METADATA: (0, 1)}
"""The versions that are not only 0. The fields of the requests are the same in all of them: a version tells the server
what the client knows.

- PUT_KV: since version 1, keys are compacted if the bucket key is not the whole key. Since version 2, the client knows
  the error STORAGE_BACKPRESSURE_EXCEPTION. In version 3 it would know of historical partitions.
- GET_KV_SNAPSHOT_METADATA: version 1 came with Fluss 1.0.0 and its second layout of stored values, which is known here
  (`formats.compacted.value_layout`).
"""


@dataclass(frozen=True, slots=True)
class ServedApis:
    """The calls that a server serves.

    Attributes:
        versions: Api key -> lowest and highest version.
    """

    versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> ServedApis:
        """Read them from the answer to API_VERSIONS."""
        return cls({each.api_key: (each.min_version, each.max_version) for each in response.api_versions})

    def serves(self, api: ApiKey) -> bool:
        """Return whether the server serves this call in a version that this client can send."""
        lowest, highest = self.versions.get(api, (0, -1))
        return max(lowest, api.versions[0]) <= min(highest, api.versions[1])

    def version_of(self, api: ApiKey, server: str) -> int:
        """Return the highest version of a call that both sides know; refuse other calls, which are never answered.

        Raises:
            FlussTieringError: UNSUPPORTED_VERSION if the server does not serve the call in a version that is known.
        """
        served = self.versions.get(api)
        if served is not None and self.serves(api):
            return min(served[1], api.versions[1])
        has = "does not have it" if served is None else f"has {_range(*served)}"
        raise FlussTieringError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the Fluss server at {server} does not serve {api.name} ({api.value}) in {_range(*api.versions)}: it "
            f"{has}; ask a server of the right kind (coordinator or tablet server), or upgrade the cluster",
        )


def _range(lowest: int, highest: int) -> str:
    return f"version {lowest}" if lowest == highest else f"versions {lowest} to {highest}"
