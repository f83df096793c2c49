"""The properties of the catalog that a table is tiered into, and which of them everybody may see, who reads a table.

A property is shown only if its key is known to hold no secret. A list of the keys that do hold one would never be
complete: each catalog, each storage and each authentication manager has its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from fluss_tiering.model.error_text import MASK, names_secret
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.table_options import (
    KV_TTL,
    LAKE_CATALOG_PREFIX,
    LAKE_TABLE_PREFIX,
    TABLE_OPTIONS,
)

_FLUSS: Final = frozenset(
    {
        KV_TTL,
        "table.changelog.image",
        "table.datalake.auto-compaction",
        "table.datalake.auto-expire-snapshot",
        "table.datalake.historical-partition.enabled",
        "table.statistics.columns",
        *(each.key for each in TABLE_OPTIONS),
    }
)
_FLUSS_GROUPS: Final = (
    "table.auto-increment.",
    "table.auto-partition.",
    "table.kv.",
    "table.log.",
    "table.merge-engine",
)
_LAKE_TABLE_GROUPS: Final = (
    "commit.",
    "compatibility.",
    "engine.hive.",
    "format-version",
    "gc.",
    "history.",
    "read.",
    "write.",
)
_LAKE_TABLE_IN_CATALOG: Final = ("table-default.", "table-override.")
_HARMLESS: Final = (
    # Of all catalogs.
    "audience cache-enabled cache.case-sensitive cache.expiration-interval-ms catalog-impl client-pool-cache-keys "
    "clients default-namespace downcast-ns-timestamp-to-us-on-write init_catalog_tables io-impl "
    "io.manifest.cache-enabled io.manifest.cache.expiration-interval-ms io.manifest.cache.max-content-length "
    "io.manifest.cache.max-total-bytes list-all-tables lock-impl lock.acquire-interval-ms lock.acquire-timeout-ms "
    "lock.heartbeat-interval-ms lock.heartbeat-threads lock.heartbeat-timeout-ms lock.table metrics-reporter-impl name "
    "namespace-separator oauth2-server-uri prefix py-catalog-impl py-io-impl resource scan-planning-mode scope "
    "snapshot-loading-mode type unique-table-location uri view-endpoints-supported warehouse "
    # Of those of REST, JDBC, Hive, Glue, DynamoDB and BigQuery.
    "rest-metrics-reporting-enabled rest-page-size rest-scan-planning.poll-num-retries "
    "rest-scan-planning.poll-timeout-ms rest-table-cache.expire-after-write-ms rest-table-cache.max-entries "
    "rest.auth.sigv4.delegate-auth-type rest.auth.type rest.client.connection-timeout-ms "
    "rest.client.connections-per-route rest.client.max-connections rest.client.max-retries rest.client.proxy.hostname "
    "rest.client.proxy.port rest.client.socket-timeout-ms rest.signing-name rest.signing-region rest.sigv4-enabled "
    "rest.sigv4.max-retries token-exchange-enabled token-refresh-enabled "
    "jdbc.init-catalog-tables jdbc.schema-version jdbc.strict-mode "
    "hive.hive2-compatible hive.kerberos-authentication lock-check-max-wait-time lock-check-min-wait-time "
    "lock-check-retries "
    "glue.account-id glue.endpoint glue.id glue.lakeformation-enabled glue.max-retries glue.region glue.retry-mode "
    "glue.skip-archive glue.skip-name-validation "
    "dynamodb.endpoint dynamodb.region dynamodb.table-name gcp.bigquery.location gcp.bigquery.project-id "
    # Of storages.
    "client.assume-role.region client.assume-role.timeout-sec client.credentials-provider client.factory client.region "
    "http-client.apache.connection-acquisition-timeout-ms http-client.apache.connection-max-idle-time-ms "
    "http-client.apache.connection-time-to-live-ms http-client.apache.connection-timeout-ms "
    "http-client.apache.max-connections http-client.apache.socket-timeout-ms http-client.proxy-endpoint "
    "http-client.type http-client.urlconnection.connection-timeout-ms http-client.urlconnection.socket-timeout-ms "
    "s3.acceleration-enabled s3.access-grants.enabled s3.access-grants.fallback-to-iam s3.acl s3.anonymous "
    "s3.analytics-accelerator.enabled s3.checksum-enabled s3.chunked-encoding-enabled s3.client-factory-impl "
    "s3.connect-timeout s3.cross-region-access-enabled s3.crt.enabled s3.crt.max-concurrency s3.delete-enabled "
    "s3.delete.batch-size s3.delete.num-threads s3.directory-bucket.list-prefix-as-directory s3.dualstack-enabled "
    "s3.endpoint s3.force-virtual-addressing s3.multipart.num-threads s3.multipart.part-size-bytes "
    "s3.multipart.threshold s3.path-style-access s3.preload-client-enabled s3.proxy-uri s3.region "
    "s3.remote-signing-enabled s3.request-timeout s3.resolve-region s3.retry-strategy-impl s3.retry.max-wait-ms "
    "s3.retry.min-wait-ms s3.retry.num-retries s3.server-side-encryption s3.signer s3.signer.endpoint s3.signer.uri "
    "s3.sse.type s3.staging-dir s3.use-arn-region-enabled s3.write.namespace-tag-enabled s3.write.storage-class "
    "s3.write.table-tag-enabled signer.endpoint signer.uri "
    "gcs.access gcs.analytics-core.enabled gcs.cache-timeout gcs.channel.read.chunk-size-bytes "
    "gcs.channel.write.chunk-size-bytes gcs.consistency gcs.default-bucket-location gcs.delete.batch-size gcs.no-auth "
    "gcs.project-id gcs.requester-pays gcs.service.host gcs.user-project gcs.version-aware "
    "adls.account-host adls.account-name adls.anon adls.blob-storage-authority adls.blob-storage-scheme "
    "adls.dfs-storage-authority adls.dfs-storage-scheme adls.read.block-size-bytes adls.write.block-size-bytes "
    "hdfs.host hdfs.port hf.endpoint"
)
"""The properties of catalogs and of file IOs that hold no secret, in Iceberg's and PyIceberg's documentation."""
_CATALOG: Final = frozenset(_HARMLESS.split())

_SCHEME: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)+(?=/)(?://)?")
_PARAMETERS: Final = re.compile(r"[?#;]")
_HARMLESS_PARAMETERS: Final = re.compile(
    r"\?(?:(?:busy_timeout|connectTimeout|journal_mode|socketTimeout|sslmode|synchronous)=[A-Za-z0-9_-]*(?:&|$))+"
)
"""Parameters of SQLite and PostgreSQL that hold no secret. Without them a reader may find no catalog."""
_PLAIN_PLACE: Final = re.compile(r"[\w.,:/\[\]%~+{}$ -]*")
_PLAIN_VALUE: Final = re.compile(r"[\w.,:/\[\]%~+{}$()* -]*")


def public_properties(properties: Mapping[str, str], *, of_catalog: bool = False) -> dict[str, str]:
    """Return the properties with `***` in place of each value, or part of one, that may be a secret.

    Args:
        properties: The options of a table, or the properties of a lake catalog.
        of_catalog: Whether they are those of a lake catalog.
    """
    is_public = _is_public_in_catalog if of_catalog else _is_public_option
    return {key: _public(value) if is_public(key) else MASK for key, value in properties.items()}


def _is_public_option(key: str) -> bool:
    if key.startswith(LAKE_CATALOG_PREFIX):
        return _is_public_in_catalog(key.removeprefix(LAKE_CATALOG_PREFIX))
    if key.startswith(LAKE_TABLE_PREFIX):
        return _is_public_in_lake_table(key.removeprefix(LAKE_TABLE_PREFIX))
    return key in _FLUSS or (key.startswith(_FLUSS_GROUPS) and not names_secret(key))


def _is_public_in_catalog(key: str) -> bool:
    for prefix in _LAKE_TABLE_IN_CATALOG:
        if key.startswith(prefix):
            return _is_public_in_lake_table(key.removeprefix(prefix))
    return key in _CATALOG or key.lower() == "header.x-iceberg-access-delegation"


def _is_public_in_lake_table(key: str) -> bool:
    return key.startswith(_LAKE_TABLE_GROUPS) and not names_secret(key)


def _public(value: str) -> str:
    """Return the value of a property that holds no secret of its own. A URI in it may hold a login or parameters."""
    scheme = _SCHEME.match(value)
    if scheme is None:
        return value if _PLAIN_VALUE.fullmatch(value) and not value.lower().startswith("jdbc:") else MASK
    return scheme.group() + _public_place(value[scheme.end() :])


def _public_place(rest: str) -> str:
    """Return what follows the scheme of a URI, without its login and its parameters.

    A password may hold any character that somebody forgot to escape, and so may a parameter. What cannot be told apart
    goes as a whole.
    """
    parameters, login = _PARAMETERS.search(rest), "@" in rest
    if parameters and login:
        return MASK
    place = rest[: parameters.start()] if parameters else rest.rpartition("@")[2]
    if not _PLAIN_PLACE.fullmatch(place):
        return MASK
    if parameters and _HARMLESS_PARAMETERS.fullmatch(rest, parameters.start()):
        return rest
    return f"{MASK}@{place}" if login else f"{place}{parameters.group()}{MASK}" if parameters else place


@dataclass(frozen=True, slots=True)
class LakeCatalogProperties:
    """The server's catalog properties, and together with them those of each table.

    Attributes:
        server: The catalog properties of the server.
        server_wins: Whether the server's properties override those of a table; otherwise the table's properties win.
    """

    server: Mapping[str, str]
    server_wins: bool

    def of(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the catalog properties of a table with these options."""
        own = {
            key.removeprefix(LAKE_CATALOG_PREFIX): value
            for key, value in options.items()
            if key.startswith(LAKE_CATALOG_PREFIX)
        }
        return {**own, **self.server} if self.server_wins else {**self.server, **own}

    def complete(self, table: TableInfo) -> TableInfo:
        """Return the table with its catalog properties."""
        return replace(table, lake_catalog_properties=self.of(table.descriptor.properties))


def without_secrets(table: TableInfo) -> TableInfo:
    """Return the table without the secrets in its options and in its catalog properties."""
    descriptor = replace(table.descriptor, properties=public_properties(table.descriptor.properties))
    shown = public_properties(table.lake_catalog_properties, of_catalog=True)
    return replace(table, descriptor=descriptor, lake_catalog_properties=shown)
