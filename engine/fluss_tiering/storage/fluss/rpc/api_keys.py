"""The calls of Fluss's protocol that are spoken here (`org.apache.fluss.rpc.protocol.ApiKeys`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, unique
from typing import Final

from fluss_tiering.api.fluss.v1.connection_pb2 import ApiVersionsResponse
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


@unique
class ApiKey(IntEnum):
    """What a request asks for."""

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

    @property
    def version(self) -> int:
        """The version of the request that is written here."""
        return _VERSIONS.get(self, 0)


_VERSIONS: Final = {ApiKey.PUT_KV: 1}
"""Those that are not 0. PUT_KV: from 1 on, keys are compacted where the bucket key is not the whole key."""


@dataclass(frozen=True, slots=True)
class ServedApis:
    """What a server said that it serves, api key -> (lowest, highest) version."""

    versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> ServedApis:
        """What the answer to API_VERSIONS says."""
        return cls({each.api_key: (each.min_version, each.max_version) for each in response.api_versions})

    def serves(self, api: ApiKey) -> bool:
        """Whether a request as it is written here would be answered."""
        lowest, highest = self.versions.get(api, (0, -1))
        return lowest <= api.version <= highest

    def check(self, api: ApiKey, server: str) -> None:
        """Refuses a request that the server would never answer: to a key that it does not know it stays silent.

        Raises:
            FlussTieringError: UNSUPPORTED_VERSION naming the call and what the server has of it.
        """
        if self.serves(api):
            return
        served = self.versions.get(api)
        has = "does not have it" if served is None else f"has versions {served[0]} to {served[1]}"
        raise FlussTieringError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the Fluss server at {server} does not serve {api.name} ({api.value}) in version {api.version}: it {has}; "
            "ask a server of the right kind (coordinator or tablet server), or upgrade the cluster",
        )
