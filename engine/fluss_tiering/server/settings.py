"""What an operator may set, by options of the command or by environment variables (FLUSS_TIERING_ and the name)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from fluss_tiering.client.channel import DEFAULT_PORT, MAX_MESSAGE_BYTES
from fluss_tiering.model.duration import parse_duration_ms
from fluss_tiering.model.error_text import mask_secrets
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.memory_size import parse_memory_size
from fluss_tiering.server.store.database import checked_store_url
from fluss_tiering.server.tiering.states import MAX_CONSECUTIVE_FAILURES
from fluss_tiering.storage.fluss.rpc.address import ServerAddress
from fluss_tiering.storage.fluss.rpc.handshake import Credentials

_PREFIX: Final = "FLUSS_TIERING_"
_OF_OTHERS: Final = frozenset({"FLUSS_TIERING_SERVER", "FLUSS_TIERING_SPARK_JARS", "FLUSS_TIERING_CLASS_ARCHIVE"})
"""What the command and the application read."""


def _memory_size(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_memory_size(value)
    except FlussTieringError as error:
        raise ValueError(error.message) from error


def _duration_ms(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_duration_ms(value)
    except FlussTieringError as error:
        raise ValueError(error.message) from error


def _json_object(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error}: expected a JSON object") from error


def _complete_catalog(properties: dict[str, str]) -> dict[str, str]:
    if properties and not {"type", "catalog-impl"} & properties.keys():
        raise ValueError(
            "neither 'type' nor 'catalog-impl' is among the properties: "
            'expected one of them, for example "type": "rest"; leave all out for the default catalog'
        )
    return properties


def _checked_store_url(url: SecretStr | None) -> SecretStr | None:
    if url is not None:
        try:
            checked_store_url(url.get_secret_value())
        except FlussTieringError as error:
            raise ValueError(error.message) from error
    return url


def _bootstrap_servers(text: str) -> str:
    if text:
        try:
            return ",".join(str(address) for address in ServerAddress.parse_list(text))
        except FlussTieringError as error:
            raise ValueError(error.message) from error
    return text


DurationMs = Annotated[int, BeforeValidator(_duration_ms), Field(gt=0)]
"""Milliseconds; given as Fluss writes durations, for example 10min."""


MemorySize = Annotated[int, BeforeValidator(_memory_size), Field(gt=0)]
"""Bytes; given as Fluss writes sizes, for example 10mb."""


@dataclass(frozen=True, slots=True)
class FlussOption:
    """Marks a setting that Fluss has too, under this key of its `ConfigOptions`."""

    key: str


SAFE_HEARTBEAT_TIMEOUT_MS: Final = 60_000
"""Two of the intervals in which a driver sends its heartbeats."""


class ServerSettings(BaseSettings):
    """The settings of a tiering server; those that Fluss has too carry its key (`FlussOption`)."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True
    )

    data_dir: Annotated[Path, AfterValidator(Path.absolute), FlussOption("data.dir")] = Path("fluss-tiering-data")
    """Folder of tables, snapshots, the server's database and, by default, the lake."""
    fluss: Annotated[str, AfterValidator(_bootstrap_servers), FlussOption("bootstrap.servers")] = ""
    """Fluss cluster whose tables are tiered: HOST:PORT of any of its servers, several with commas between them. Without
    it the server keeps tables of its own in the data folder."""
    fluss_username: str = ""
    """User for a listener of the Fluss cluster that demands SASL/PLAIN."""
    fluss_password: SecretStr | None = None
    """The user's password; better set by FLUSS_TIERING_FLUSS_PASSWORD than on a command line."""
    fluss_start_timeout: DurationMs = 60_000
    """How long a Fluss cluster that is away may take to come, when the server starts."""
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address to listen on; loopback unless told otherwise, since there is no authentication."""
    port: Annotated[int, Field(ge=0, le=65535)] = DEFAULT_PORT
    """Port to listen on; 0 takes a free one."""
    metrics_enabled: bool = True
    """Whether metrics are exported for Prometheus, over HTTP on `host`, without authentication."""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """Port for metrics; 0 takes a free one. By default the one after `port`: 9134 beside 9133, a free one beside 0."""
    store_url: Annotated[SecretStr | None, AfterValidator(_checked_store_url)] = None
    """PostgreSQL database of leases, statuses and epochs, as postgresql://USER:PASSWORD@HOST:PORT/DATABASE; by default
    SQLite in the data folder. Servers on one database take over from each other."""
    advertised_address: Annotated[str, Field(pattern=r"^$|^\S+:\d+$")] = ""
    """HOST:PORT at which other servers on the same PostgreSQL reach this one; by default where it listens."""
    leader_lease: Annotated[DurationMs, Field(ge=1000)] = 8_000
    """How long the active one of several servers may be silent before another one takes over; it renews four times as
    often."""
    kv_snapshot_lease_expiration_check_interval: Annotated[
        DurationMs, FlussOption("kv.snapshot.lease.expiration-check-interval")
    ] = 10 * 60_000
    """How often expired leases are dropped (L9)."""
    heartbeat_timeout: DurationMs = 120_000
    """How long a round may be silent (S4). Drivers send a heartbeat every 30 s: below a minute one late heartbeat fails
    a healthy round, of which the server warns."""
    heartbeat_check_interval: DurationMs = 15_000
    """How often silent rounds are looked for (S4)."""
    kv_snapshot_interval: Annotated[DurationMs, FlussOption("kv.snapshot.interval")] = 10 * 60_000
    """How often KV snapshots are taken and old ones collected."""
    kv_snapshot_num_retained: Annotated[PositiveInt, FlussOption("kv.snapshot.num-retained")] = 2
    """KV snapshots that are kept of each bucket, besides leased ones."""
    kv_scanner_ttl: Annotated[DurationMs, FlussOption("kv.scanner.ttl")] = 10 * 60_000
    """How long a scanner of a primary-key table may be idle before it expires (K10)."""
    kv_scanner_expiration_interval: Annotated[DurationMs, FlussOption("kv.scanner.expiration-interval")] = 30_000
    """How often idle scanners are looked for (K10)."""
    kv_scanner_max_per_bucket: Annotated[PositiveInt, FlussOption("kv.scanner.max-per-bucket")] = 8
    """Scanners of one bucket that may be open at once (K2)."""
    kv_scanner_max_per_server: Annotated[PositiveInt, FlussOption("kv.scanner.max-per-server")] = 200
    """Scanners of all buckets that may be open at once (K2)."""
    kv_scanner_max_batch_size: Annotated[MemorySize, FlussOption("kv.scanner.max-batch-size")] = 10 << 20
    """Bytes of rows in one answer to a scan, whatever its client asks for (K7)."""
    failure_backoff_base: DurationMs = 10_000
    """How long a table rests after its first failure, before jitter; doubled with each further one (S18)."""
    failure_backoff_cap: DurationMs = 10 * 60_000
    """How long a failed table rests at most (S18)."""
    max_consecutive_failures: PositiveInt = MAX_CONSECUTIVE_FAILURES
    """After so many failures in a row a table is parked: not tried again until it is resumed or altered (S19)."""
    lake_catalog: Annotated[dict[str, str], BeforeValidator(_json_object), AfterValidator(_complete_catalog)] = Field(
        default_factory=dict
    )
    """Iceberg catalog properties of the lake, a JSON object; by default a JDBC catalog on SQLite in the data folder."""
    kept_rounds: PositiveInt = 100
    """Rounds that are kept of each table, in its history (S23)."""
    max_message_bytes: PositiveInt = MAX_MESSAGE_BYTES
    """Of one gRPC message."""
    shutdown_grace: DurationMs = 30_000
    """How long calls in flight may take to end when the server is stopped."""
    log_format: Literal["logfmt", "json"] = "logfmt"
    """How log lines look."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Lines below this level are left out."""

    @property
    def fluss_credentials(self) -> Credentials | None:
        """User and password for the Fluss cluster, where it demands any."""
        if self.fluss_password is None:
            return None
        return Credentials(self.fluss_username, self.fluss_password.get_secret_value())

    @model_validator(mode="after")
    def _complete_credentials(self) -> Self:
        if bool(self.fluss_username) != (self.fluss_password is not None):
            raise ValueError("a user without a password for Fluss, or the other way round: expected both or none")
        if self.fluss_username and not self.fluss:
            raise ValueError("a user for Fluss and no address: expected that of the cluster (fluss) too")
        return self


def settings_from_keys(pairs: Sequence[str]) -> dict[str, str]:
    """Settings given as KEY=VALUE, by name: `kv.snapshot.num-retained=3` is `kv_snapshot_num_retained`.

    Raises:
        FlussTieringError: INVALID_REQUEST for what is not KEY=VALUE, or a key that is no setting.
    """
    given: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        name = key.strip().replace(".", "_").replace("-", "_").lower()
        if not equals or name not in ServerSettings.model_fields:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{key!r} is not a setting: expected KEY=VALUE with a key of docs/reference/configuration.md, "
                "for example kv.snapshot.interval=5min",
            )
        given[name] = value.strip()
    return given


def load_settings(**given: Any) -> ServerSettings:
    """The settings from what is given, then the environment, then the defaults.

    Raises:
        FlussTieringError: INVALID_REQUEST naming every setting that is wrong.
    """
    try:
        return ServerSettings(**given)
    except ValidationError as error:
        wrong = "; ".join(
            (f"{_PREFIX}{'_'.join(str(part) for part in each['loc']).upper()}: " if each["loc"] else "")
            + each["msg"]
            # A catalog's properties, all or one of them, may be secrets.
            + (f", not {each['input']!r}" if len(each["loc"]) == 1 and not isinstance(each["input"], dict) else "")
            for each in error.errors()
        )
        raise FlussTieringError(ErrorCode.INVALID_REQUEST, mask_secrets(f"settings of the server: {wrong}")) from error
    except SettingsError as error:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"settings of the server: {error}: expected a JSON object"
        ) from error


def unknown_variables(environment: Iterable[str]) -> dict[str, str | None]:
    """Names of environment variables that look like settings and are none, each with the one that was perhaps meant.

    A misspelt setting would otherwise be passed over in silence.
    """
    unknown: dict[str, str | None] = {}
    for variable in sorted(environment):
        name = variable.upper().removeprefix(_PREFIX).lower()
        if variable.upper().startswith(_PREFIX) and variable.upper() not in _OF_OTHERS:
            # Without the prefix, by which all look alike.
            close = get_close_matches(name, ServerSettings.model_fields, 1)
            if close != [name]:
                unknown[variable] = f"{_PREFIX}{close[0].upper()}" if close else None
    return unknown
