"""The calls of Fluss's protocol that this client makes (`org.apache.fluss.rpc.protocol.ApiKeys`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, unique
from typing import Final

from fluss_tiering.api.fluss.v1.connection_pb2 import ApiVersionsResponse
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


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

    @property
    def version(self) -> int:
        """The version of the request that this client sends."""
        return _VERSIONS.get(self, 0)


_VERSIONS: Final = {ApiKey.PUT_KV: 1}
"""The versions that are not 0. Since version 1 of PUT_KV, keys are compacted if the bucket key is not the whole key."""


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
        """Return whether the server serves this call in the version that this client sends."""
        lowest, highest = self.versions.get(api, (0, -1))
        return lowest <= api.version <= highest

    def check(self, api: ApiKey, server: str) -> None:
        """Refuse a call that the server does not serve: it would never answer.

        Raises:
            FlussTieringError: UNSUPPORTED_VERSION if the server does not serve the call in this version.
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
