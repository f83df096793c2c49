"""What an operator may set, by options of the command or by environment variables (FLUSS_TIERING_ and the name)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from fluss_tiering.client.channel import DEFAULT_PORT, MAX_MESSAGE_BYTES
from fluss_tiering.model.duration import parse_duration_ms
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_PREFIX: Final = "FLUSS_TIERING_"


def _duration_ms(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_duration_ms(value)
    except FlussTieringError as error:
        raise ValueError(error.message) from error


def _complete_catalog(properties: dict[str, str]) -> dict[str, str]:
    if properties and not {"type", "catalog-impl"} & properties.keys():
        raise ValueError(
            "neither 'type' nor 'catalog-impl' is among the properties: "
            'expected one of them, for example "type": "rest"; leave all out for the default catalog'
        )
    return properties


DurationMs = Annotated[int, BeforeValidator(_duration_ms), Field(gt=0)]
"""Milliseconds; given as Fluss writes durations, for example 10min."""


SAFE_HEARTBEAT_TIMEOUT_MS: Final = 60_000
"""Two of the intervals in which a driver sends its heartbeats."""


class ServerSettings(BaseSettings):
    """The settings of a tiering server.

    Attributes:
        data_dir: folder of tables, snapshots, the server's database and, by default, the lake.
        host: address to listen on; loopback unless told otherwise, since there is no authentication.
        port: 0 takes a free one.
        lease_check_interval: how often expired leases are dropped (L9).
        heartbeat_timeout: how long a round may be silent (S4). Drivers send a heartbeat every 30 s: below
            `SAFE_HEARTBEAT_TIMEOUT_MS` one late heartbeat fails a healthy round, of which the server warns.
        heartbeat_check_interval: how often that is looked at.
        kv_snapshot_interval: how often KV snapshots are taken and old ones collected (Fluss's kv.snapshot.interval).
        retained_kv_snapshots: of each bucket, besides leased ones (Fluss's kv.snapshot.num-retained).
        failure_backoff_base, failure_backoff_cap: how long a failed table rests after the first failure, and at most.
        lake_catalog: Iceberg catalog properties of the lake; by default a JDBC catalog on SQLite in the data folder.
        kept_rounds: of each table, in its history.
        max_message_bytes: of one gRPC message.
        shutdown_grace: how long calls in flight may take to end when the server is stopped.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="forbid", validate_default=True)

    data_dir: Annotated[Path, AfterValidator(Path.absolute)] = Path("fluss-tiering-data")
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = DEFAULT_PORT
    lease_check_interval: DurationMs = 10 * 60_000
    heartbeat_timeout: DurationMs = 120_000
    heartbeat_check_interval: DurationMs = 15_000
    kv_snapshot_interval: DurationMs = 10 * 60_000
    retained_kv_snapshots: PositiveInt = 2
    failure_backoff_base: DurationMs = 10_000
    failure_backoff_cap: DurationMs = 10 * 60_000
    lake_catalog: Annotated[dict[str, str], AfterValidator(_complete_catalog)] = Field(default_factory=dict)
    kept_rounds: PositiveInt = 100
    max_message_bytes: PositiveInt = MAX_MESSAGE_BYTES
    shutdown_grace: DurationMs = 30_000
    log_format: Literal["logfmt", "json"] = "logfmt"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"


def load_settings(**given: Any) -> ServerSettings:
    """The settings from what is given, then the environment, then the defaults.

    Raises:
        FlussTieringError: INVALID_REQUEST naming every setting that is wrong.
    """
    try:
        return ServerSettings(**given)
    except ValidationError as error:
        wrong = "; ".join(
            f"{_PREFIX}{'_'.join(str(part) for part in each['loc']).upper()}: {each['msg']}"
            # A catalog's properties, all or one of them, may be secrets.
            + (f", not {each['input']!r}" if len(each["loc"]) == 1 and not isinstance(each["input"], dict) else "")
            for each in error.errors()
        )
        raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"settings of the server: {wrong}") from error
    except SettingsError as error:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f"settings of the server: {error}: expected a JSON object"
        ) from error
