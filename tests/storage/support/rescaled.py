"""A client whose cluster seems to have changed the number of buckets of its tables, as Fluss 1.0.0 can do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.connection_steps import Credentials
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError


class Rescaled(FlussClient):
    """A client whose answers say that each table was rescaled, and how many buckets each partition has.

    Attributes:
        epoch: The bucket count epoch of all tables.
        of_table: The number of buckets of each table.
        of_partition: Value of the partition -> its number of buckets; partitions that are not named have none.
        placed: The number of buckets that came with each write.
        refuse: The error for writes; None for none.
    """

    def __init__(self, bootstrap: str, credentials: Credentials | None = None) -> None:
        super().__init__(bootstrap, credentials=credentials)
        self.epoch = 1
        self.of_table = 1
        self.of_partition: dict[str, int] = {}
        self.placed: list[int | None] = []
        self.refuse: FlussError | None = None

    def call(self, call: Any, *, within: float | None = None) -> Any:
        changes: dict[ApiKey, Callable[[Any], None]] = {
            ApiKey.GET_TABLE_INFO: self._table,
            ApiKey.LIST_PARTITION_INFOS: self._partitions,
        }
        if call.api in (ApiKey.PRODUCE_LOG, ApiKey.PUT_KV):
            (bucket,) = call.request.buckets_req
            has = bucket.HasField("routing_bucket_count")
            self.placed.append(bucket.routing_bucket_count if has else None)
            if self.refuse is not None:
                raise FlussServerError(self.refuse, "stale", "a write")
        change = changes.get(call.api)
        if change is not None:
            call = replace(call, read=lambda response, read=call.read: (change(response), read(response))[1])
        return super().call(call, within=within)

    def _table(self, response: Any) -> None:
        response.bucket_count_epoch = self.epoch
        found = response.table_json.decode()
        before, _, after = found.partition('"bucket_count":')
        response.table_json = f'{before}"bucket_count":{self.of_table}{after.lstrip("0123456789")}'.encode()

    def _partitions(self, response: Any) -> None:
        for each in response.partitions_info:
            (value,) = (pair.value for pair in each.partition_spec.partition_key_values)
            if value in self.of_partition:
                each.bucket_count = self.of_partition[value]
