"""The settings of the server, from options of the command or from environment variables.

The environment variable of a setting is `FLUSS_TIERING_` and the name of the setting. Users give durations with a unit;
the fields hold milliseconds and end in `_ms`, which the names that users know leave out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from fluss_tiering.client.channel import MAX_MESSAGE_BYTES
from fluss_tiering.client.target import DEFAULT_PORT
from fluss_tiering.model.duration import parse_duration_ms
from fluss_tiering.model.error_text import mask_secrets
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.memory_size import parse_memory_size
from fluss_tiering.server.store.database import checked_store_url
from fluss_tiering.server.tiering.states import MAX_CONSECUTIVE_FAILURES
from fluss_tiering.storage.fluss.rpc.address import ServerAddress
from fluss_tiering.storage.fluss.rpc.handshake import Credentials

_PREFIX: Final = "FLUSS_TIERING_"
_MILLISECONDS: Final = "_ms"
_OF_OTHERS: Final = frozenset(
    {
        "FLUSS_TIERING_BUILD_SPARK_JARS",
        "FLUSS_TIERING_CLASS_ARCHIVE",
        "FLUSS_TIERING_SERVER",
        "FLUSS_TIERING_SPARK_JARS",
    }
)
"""Environment variables that the command, the Spark application and the build of the package read."""


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


def _folder(value: object) -> object:
    if value == "":
        raise ValueError("the path is empty: expected a folder; . is the present one")
    return value


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
"""A duration in milliseconds. Users write it as Fluss does, for example 10min."""

_LARGEST: Final = 2**31 - 1
"""gRPC takes no larger number."""

MemorySize = Annotated[int, BeforeValidator(_memory_size), Field(gt=0, le=_LARGEST)]
"""A size in bytes. Users write it as Fluss does, for example 10mb."""

Count = Annotated[int, Field(gt=0, le=_LARGEST)]
"""A number of things, or of bytes."""


@dataclass(frozen=True, slots=True)
class FlussOption:
    """Marks a setting that Fluss has too.

    Attributes:
        key: The key of the setting in Fluss's `ConfigOptions`.
    """

    key: str


SAFE_HEARTBEAT_TIMEOUT_MS: Final = 60_000
"""Twice the interval in which a driver sends its heartbeats."""


class ServerSettings(BaseSettings):
    """The settings of a tiering server. Those that Fluss has too carry Fluss's key (`FlussOption`)."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        # A field has the name that users know as its alias.
        env_prefix_target="all",
        alias_generator=lambda field: field.removesuffix(_MILLISECONDS),
        frozen=True,
        extra="forbid",
        validate_default=True,
        use_attribute_docstrings=True,
    )

    data_dir: Annotated[Path, BeforeValidator(_folder), AfterValidator(Path.absolute), FlussOption("data.dir")] = Path(
        "fluss-tiering-data"
    )
    """The folder for the server's tables, KV snapshots, database and, by default, the lake."""
    fluss: Annotated[str, AfterValidator(_bootstrap_servers), FlussOption("bootstrap.servers")] = ""
    """The Fluss cluster whose tables are tiered: HOST:PORT of one or more of its servers, separated by commas. Without
    this setting the server has tables of its own in the data folder."""
    fluss_username: str = ""
    """The user for a Fluss cluster that requires SASL/PLAIN."""
    fluss_password: SecretStr | None = None
    """The password of the user. Set it by FLUSS_TIERING_FLUSS_PASSWORD rather than on a command line."""
    fluss_start_timeout_ms: DurationMs = 60_000
    """How long the server waits at its start for a Fluss cluster that cannot be reached."""
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """The address to listen on. The default is the loopback address, because the server has no authentication."""
    port: Annotated[int, Field(ge=0, le=65535)] = DEFAULT_PORT
    """The port to listen on; 0 for any free port."""
    metrics_enabled: bool = True
    """Whether the server exports metrics for Prometheus: over HTTP on `host`, without authentication."""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """The port for metrics; 0 for any free port. By default the port after `port`, such as 9134 after 9133, or any free
    port if `port` is 0."""
    store_url: Annotated[SecretStr | None, AfterValidator(_checked_store_url)] = None
    """The PostgreSQL database for leases, statuses and epochs, as postgresql://USER:PASSWORD@HOST:PORT/DATABASE. By
    default the server uses SQLite in the data folder. Several servers on one database take over from each other."""
    advertised_address: Annotated[str, Field(pattern=r"^$|^\S+:\d+$")] = ""
    """HOST:PORT at which other servers on the same database reach this server; by default where it listens."""
    leader_lease_ms: Annotated[DurationMs, Field(ge=1000)] = 8_000
    """How long the active server may be silent before another server takes over. The active server renews its
    leadership four times in this time. If it cannot, it stops leading after this time."""
    kv_snapshot_lease_expiration_check_interval_ms: Annotated[
        DurationMs, FlussOption("kv.snapshot.lease.expiration-check-interval")
    ] = 10 * 60_000
    """How often expired leases are dropped."""
    kv_snapshot_lease_max: Count = 100_000
    """The largest number of KV snapshot leases."""
    kv_snapshot_lease_max_snapshots: Count = 1_000_000
    """The largest number of KV snapshots that all leases together pin. A snapshot counts once for each lease."""
    kv_snapshot_lease_max_ids: Count = 1_000_000
    """The largest number of lease ids whose newest attempt is remembered. An unused one is forgotten after a week."""
    heartbeat_timeout_ms: DurationMs = 120_000
    """How long a round may send no heartbeat before it is interrupted. Drivers send a heartbeat every 30 s. With less
    than a minute, one late heartbeat ends a healthy round; the server logs a warning then."""
    max_round_duration_ms: DurationMs = 7 * 24 * 60 * 60 * 1000
    """How long a round may run, however many heartbeats its driver sends. A driver that hangs while its heartbeats go
    on would keep its table for ever. The default is longer than any first round of a large table."""
    heartbeat_check_interval_ms: DurationMs = 15_000
    """How often the server looks for rounds that send no heartbeats."""
    kv_snapshot_interval_ms: Annotated[DurationMs, FlussOption("kv.snapshot.interval")] = 10 * 60_000
    """How often KV snapshots are taken and old ones are deleted."""
    kv_snapshot_num_retained: Annotated[Count, FlussOption("kv.snapshot.num-retained")] = 2
    """The number of KV snapshots that are kept of each bucket, in addition to leased ones."""
    kv_scanner_ttl_ms: Annotated[DurationMs, FlussOption("kv.scanner.ttl")] = 10 * 60_000
    """How long a scanner of a primary-key table may be idle before it expires."""
    kv_scanner_expiration_interval_ms: Annotated[DurationMs, FlussOption("kv.scanner.expiration-interval")] = 30_000
    """How often the server looks for idle scanners."""
    kv_scanner_max_per_bucket: Annotated[Count, FlussOption("kv.scanner.max-per-bucket")] = 8
    """The largest number of open scanners of one bucket."""
    kv_scanner_max_per_server: Annotated[Count, FlussOption("kv.scanner.max-per-server")] = 200
    """The largest number of open scanners of all buckets."""
    kv_scanner_max_batch_size: Annotated[MemorySize, FlussOption("kv.scanner.max-batch-size")] = 10 << 20
    """The largest size of the rows in one answer to a scan, even if the client asks for more."""
    failure_backoff_base_ms: DurationMs = 10_000
    """How long a table waits after its first failure, before jitter. Each further failure doubles the time."""
    failure_backoff_cap_ms: DurationMs = 10 * 60_000
    """The longest time that a failed table waits."""
    max_consecutive_failures: Count = MAX_CONSECUTIVE_FAILURES
    """The number of failures in a row after which a table is parked: it waits until it is resumed or altered."""
    lake_catalog: Annotated[dict[str, str], BeforeValidator(_json_object), AfterValidator(_complete_catalog)] = Field(
        default_factory=dict
    )
    """The Iceberg catalog properties of the lake, as a JSON object. The default is a JDBC catalog on SQLite in the data
    folder."""
    kept_rounds: Count = 100
    """The number of rounds that are kept in the history of each table."""
    max_message_bytes: Count = MAX_MESSAGE_BYTES
    """The largest size of a gRPC message in bytes."""
    max_request_bytes: Count = 8 << 20
    """The largest size in bytes of a request that carries no rows, such as a heartbeat or a commit."""
    max_concurrent_calls: Count = 2000
    """The largest number of calls that the server answers at once, streams included. Further calls are refused,
    and clients try them again after a while."""
    shutdown_grace_ms: DurationMs = 30_000
    """How long running calls may take to end when the server is stopped. With PostgreSQL it is 2 s at most, so that
    another server takes over soon."""
    log_format: Literal["logfmt", "json"] = "logfmt"
    """The format of log lines."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The lowest level of log lines that are written."""

    @property
    def fluss_credentials(self) -> Credentials | None:
        """The user and the password for the Fluss cluster; None if it requires none."""
        if self.fluss_password is None:
            return None
        return Credentials(self.fluss_username, self.fluss_password.get_secret_value())

    @model_validator(mode="after")
    def _complete_credentials(self) -> Self:
        if bool(self.fluss_username) != (self.fluss_password is not None):
            raise ValueError("only one of user and password for Fluss is set: expected both or none")
        if self.fluss_username and not self.fluss:
            raise ValueError(
                "a user for Fluss is set without an address: expected the address of the cluster (fluss) too"
            )
        return self


def setting_fields() -> dict[str, FieldInfo]:
    """Return the fields of the settings, by the names that users know."""
    return {field.alias or name: field for name, field in ServerSettings.model_fields.items()}


def settings_from_keys(pairs: Sequence[str]) -> dict[str, str]:
    """Return settings that are given as KEY=VALUE, by name: `kv.snapshot.num-retained=3` is `kv_snapshot_num_retained`.

    Raises:
        FlussTieringError: INVALID_REQUEST if a pair is not KEY=VALUE or its key is not a setting.
    """
    names = setting_fields()
    given: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        name = key.strip().replace(".", "_").replace("-", "_").lower()
        if not equals or name not in names:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{key!r} is not a setting: expected KEY=VALUE, for example kv.snapshot.interval=5min; "
                "the documentation lists all keys on its page Configuration",
            )
        given[name] = value.strip()
    return given


def load_settings(**given: Any) -> ServerSettings:
    """Return the settings: first those that are given, then those of the environment, then the defaults.

    Args:
        **given: Settings by the names that users know, for example `heartbeat_timeout`.

    Raises:
        FlussTieringError: INVALID_REQUEST if a setting is wrong; the message names all that are.
    """
    try:
        return ServerSettings(**given)
    except ValidationError as error:
        wrong = "; ".join(
            (f"{_PREFIX}{'_'.join(str(part) for part in each['loc']).upper()}: " if each["loc"] else "")
            + each["msg"].removeprefix("Value error, ")
            # The properties of a catalog may be secrets, all of them or some.
            + (f", not {each['input']!r}" if len(each["loc"]) == 1 and not isinstance(each["input"], dict) else "")
            for each in error.errors()
        )
        raise FlussTieringError(ErrorCode.INVALID_REQUEST, mask_secrets(f"settings of the server: {wrong}")) from error
    except SettingsError as error:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"settings of the server: {error}: expected a JSON object"
        ) from error


def unknown_variables(environment: Iterable[str]) -> dict[str, str | None]:
    """Return environment variables that look like settings but are none, each with the one that is perhaps meant.

    Without this check a misspelt setting would be ignored in silence.

    Args:
        environment: The names of all environment variables.
    """
    names = setting_fields()
    unknown: dict[str, str | None] = {}
    for variable in sorted(environment):
        name = variable.upper().removeprefix(_PREFIX).lower()
        if variable.upper().startswith(_PREFIX) and variable.upper() not in _OF_OTHERS:
            # Compared without the prefix, which makes all names look alike.
            close = get_close_matches(name, names, 1)
            if close != [name]:
                unknown[variable] = f"{_PREFIX}{close[0].upper()}" if close else None
    return unknown
