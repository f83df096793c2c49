"""The settings of the server, from options of the command or from environment variables.

The environment variable of a setting is `FLUSS_TIERING_` and the name of the setting. A file of the same name, in the
folder that `SECRETS_VARIABLE` names, may hold the value instead. Users give durations with a unit; the fields hold
milliseconds and end in `_ms`, which the names that users know leave out.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_origin

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from fluss_tiering.client.security import VARIABLES
from fluss_tiering.client.target import DEFAULT_PORT, is_loopback
from fluss_tiering.model.error_text import mask_secrets
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.misspelled import meant
from fluss_tiering.server.settings.types import (
    BootstrapServers,
    CatalogProperties,
    Count,
    DurationMs,
    FlussOption,
    Folder,
    IssuerUrl,
    MemorySize,
    OptionalFile,
    StoreUrl,
    expected,
)
from fluss_tiering.server.settings.values import Issuer, TlsFiles
from fluss_tiering.storage.fluss.rpc.connection_steps import Credentials

_PREFIX: Final = "FLUSS_TIERING_"
_MILLISECONDS: Final = "_ms"
SECRETS_VARIABLE: Final = "FLUSS_TIERING_SECRETS_DIR"
_OF_OTHERS: Final = VARIABLES | frozenset(
    {
        SECRETS_VARIABLE,
        "FLUSS_TIERING_BUILD_SPARK_JARS",
        "FLUSS_TIERING_CLASS_ARCHIVE",
        "FLUSS_TIERING_HEALTH_TLS_NAME",
        "FLUSS_TIERING_SERVER",
        "FLUSS_TIERING_SPARK_JARS",
    }
)
"""Environment variables that the command, the Spark application and the build of the package read, or that name the
folder of files."""


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

    data_dir: Annotated[Folder, FlussOption("data.dir")] = Path("fluss-tiering-data")
    """The folder for the server's tables, KV snapshots, database and, by default, the lake."""
    fluss: Annotated[BootstrapServers, FlussOption("bootstrap.servers")] = ""
    """The Fluss cluster whose tables are tiered: HOST:PORT of one or more of its servers, separated by commas. Without
    this setting the server has tables of its own in the data folder."""
    fluss_username: str = ""
    """The user for a Fluss cluster that requires SASL/PLAIN."""
    fluss_password: SecretStr | None = None
    """The password of the user. Set it by FLUSS_TIERING_FLUSS_PASSWORD rather than on a command line."""
    fluss_start_timeout_ms: DurationMs = 60_000
    """How long the server waits at its start for a Fluss cluster that cannot be reached."""
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """The address to listen on. The default is the loopback address, which other machines cannot reach."""
    port: Annotated[int, Field(ge=0, le=65535)] = DEFAULT_PORT
    """The port to listen on; 0 for any free port."""
    metrics_enabled: bool = True
    """Whether the server exports metrics for Prometheus on `host`: over HTTP, or over HTTPS with `tls-cert-file`. A
    server that asks callers who they are asks Prometheus, too. It needs the role reader for all tables."""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """The port for metrics; 0 for any free port. By default the port after `port`, such as 9134 after 9133, or any free
    port if `port` is 0."""
    store_url: StoreUrl = None
    """The PostgreSQL database for leases, statuses and epochs, as postgresql://USER:PASSWORD@HOST:PORT/DATABASE. By
    default the server uses SQLite in the data folder. Several servers on one database take over from each other."""
    advertised_address: Annotated[str, Field(pattern=r"^$|^\S+:\d+$")] = ""
    """HOST:PORT at which clients reach this server, which a standby server tells them; by default where it listens."""
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
    max_consecutive_failures: Count = 10
    """The number of failures in a row after which a table is parked: it waits until it is resumed or altered."""
    lake_catalog: CatalogProperties = Field(default_factory=dict)
    """The Iceberg catalog properties of the lake, as a JSON object. The default is a JDBC catalog on SQLite in the data
    folder."""
    kept_rounds: Count = 100
    """The number of rounds that are kept in the history of each table."""
    max_message_bytes: MemorySize = 16 << 20
    """The largest size of a request, which only requests with rows may have. A row has to fit into one."""
    max_request_bytes: MemorySize = 8 << 20
    """The largest size of a request that carries no rows, such as a commit. Requests that do not name all
    buckets of a table may have 1 MiB at most."""
    max_concurrent_calls: Count = 2000
    """The largest number of calls that the server answers at once, streams included. Further calls are refused,
    and clients try them again after a while."""
    audit_log: str = ""
    """The file of the audit log, or `-` for standard output. By default there is none."""
    audit_log_calls: Literal["changes", "all"] = "changes"
    """Which calls the audit log has: `changes` for those that take a role above reader and those that are refused, or
    `all`."""
    tokens_file: OptionalFile = None
    """The file of static tokens, which `fluss-tiering token create` writes. With this setting, callers must prove who
    they are."""
    access_file: OptionalFile = None
    """The file in TOML that gives roles to certificates and to identities of OpenID Connect. With this setting, callers
    must prove who they are."""
    tls_cert_file: OptionalFile = None
    """The server's certificate chain in PEM. With this setting and the key, the server answers over TLS only. The files
    are read again when they change."""
    tls_key_file: OptionalFile = None
    """The key of the server's certificate in PEM, without a password."""
    tls_client_ca_file: OptionalFile = None
    """The authorities in PEM whose certificates clients must show (mutual TLS)."""
    tls_ca_file: OptionalFile = None
    """The authorities in PEM that the certificate of another server may come from, to which a standby server forwards
    lists of statuses. The default is the authorities of the system."""
    oidc_issuer: IssuerUrl = ""
    """The issuer of OpenID Connect whose tokens callers may bring, exactly as its tokens say it in `iss`. It needs an
    audience and an access file too."""
    oidc_audience: str = ""
    """What the claim `aud` of a token must be or hold: the name of this server at the issuer."""
    oidc_identity_claim: Annotated[str, Field(min_length=1)] = "sub"
    """The claim that names the caller: `oidc/NAME` in the access file. Choose one whose value the issuer never gives to
    somebody else."""
    oidc_groups_claim: Annotated[str, Field(min_length=1)] = "groups"
    """The claim that names the caller's groups, as a text or a list: `oidc-group/NAME` in the access file."""
    allow_insecure: bool = False
    """Whether the server may listen on an address that other machines reach without TLS or without asking callers who
    they are."""
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

    @property
    def tls_files(self) -> TlsFiles | None:
        """The files of TLS; None for a server without it."""
        if self.tls_cert_file is None or self.tls_key_file is None:
            return None
        return TlsFiles(self.tls_cert_file, self.tls_key_file, self.tls_client_ca_file)

    @property
    def oidc(self) -> Issuer | None:
        """The issuer of OpenID Connect; None if there is none."""
        if not self.oidc_issuer:
            return None
        return Issuer(self.oidc_issuer, self.oidc_audience, self.oidc_identity_claim, self.oidc_groups_claim)

    @property
    def asks_callers(self) -> bool:
        """Whether callers must prove who they are."""
        return self.tokens_file is not None or self.access_file is not None

    @model_validator(mode="after")
    def _complete_tls(self) -> Self:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("only one of tls-cert-file and tls-key-file is set: expected both or none")
        if self.tls_client_ca_file is not None and self.tls_cert_file is None:
            raise ValueError("tls-client-ca-file is set without tls-cert-file and tls-key-file: expected them too")
        return self

    @model_validator(mode="after")
    def _complete_access(self) -> Self:
        if self.access_file is not None and self.tls_client_ca_file is None and not self.oidc_issuer:
            raise ValueError(
                "access-file is set, but nobody could use its roles: expected tls-client-ca-file too, for "
                "certificates, or oidc-issuer, for tokens of OpenID Connect"
            )
        if self.oidc_issuer and (not self.oidc_audience or self.access_file is None):
            raise ValueError(
                "oidc-issuer is set without oidc-audience or without access-file: expected both, because a token of "
                "the issuer may be for another service, and gives no role by itself"
            )
        if self.oidc_audience and not self.oidc_issuer:
            raise ValueError("oidc-audience is set without oidc-issuer: expected it too")
        return self

    @model_validator(mode="after")
    def _not_open(self) -> Self:
        missing = [
            what
            for what, there in (
                ("TLS (tls-cert-file and tls-key-file)", self.tls_cert_file is not None),
                ("authentication (tokens-file or access-file)", self.asks_callers),
            )
            if not there
        ]
        if missing and not self.allow_insecure and not is_loopback(self.host):
            raise ValueError(
                f"the server would listen on {self.host} without {' and without '.join(missing)}, so that whoever "
                "reaches this address could read or change tables: set them, listen on 127.0.0.1, or allow it with "
                "allow-insecure=true"
            )
        return self

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
        FlussTieringError: INVALID_REQUEST if a pair is not KEY=VALUE, its key is not a setting, or two pairs have the
            same key.
    """
    names = setting_fields()
    given: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        name = key.strip().replace(".", "_").replace("-", "_").lower()
        if not equals or name not in names:
            nearest = None if name in names else meant(name, names)
            hint = f" (did you mean {nearest.replace('_', '-')}?)" if nearest else ""
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{key!r} is not a setting{hint}: expected KEY=VALUE, for example kv.snapshot.interval=5min; "
                "the documentation lists all keys on its page Configuration",
            )
        if name in given:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"the setting {key.strip()!r} is given twice: expected each setting once",
            )
        given[name] = value.strip()
    return given


def load_settings(**given: Any) -> ServerSettings:
    """Return the settings: first those that are given, then those of the environment and of files, then the defaults.

    Args:
        **given: Settings by the names that users know, for example `heartbeat_timeout`.

    Raises:
        FlussTieringError: INVALID_REQUEST if a setting is wrong; the message names all that are. Or if a file cannot be
            read.
    """
    try:
        return ServerSettings(**{**_of_files(os.environ), **given})
    except ValidationError as error:
        wrong = "; ".join(_wrong(each, given) for each in error.errors())
        raise FlussTieringError(ErrorCode.INVALID_REQUEST, mask_secrets(f"settings of the server: {wrong}")) from error


def _of_files(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that are in files and not in the environment, by name."""
    folder = environment.get(SECRETS_VARIABLE)
    if not folder:
        return {}
    if not Path(folder).is_dir():
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{SECRETS_VARIABLE}: {folder} is no folder: expected one with files that are named as variables of "
            f"settings, for example {_PREFIX}STORE_URL",
        )
    found = {}
    for name in setting_fields():
        file = Path(folder, f"{_PREFIX}{name.upper()}")
        if file.name not in environment and os.path.lexists(file):
            try:
                found[name] = file.read_text().strip()
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{file} cannot be read: {reason}") from error
    return found


def _wrong(error: Mapping[str, Any], given: Collection[str]) -> str:
    """Return which setting is wrong, as the user named it, and what was expected instead of its value."""
    place, value = error["loc"], error["input"]
    fields = setting_fields()
    if not place or place[0] not in fields:
        return str(error["msg"]).removeprefix("Value error, ")
    name = str(place[0])
    told = name.replace("_", "-") if name in given else f"{_PREFIX}{name.upper()}"
    words = expected(fields[name], error)
    # The properties of a catalog may be secrets, all of them or some.
    # So may be a store's URL, which cannot be masked by its form if that is wrong.
    is_secret = get_origin(fields[name].annotation) is dict or name == "store_url"
    is_shown = not is_secret and repr(value) not in words
    return f"{told}: {words}{f', not {value!r}' if is_shown else ''}"


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return variables and files that look like settings but are none, each with the one that is perhaps meant.

    Without this check a misspelt setting would be ignored in silence.
    """
    folder = environment.get(SECRETS_VARIABLE)
    files = {each.name for each in Path(folder).iterdir()} if folder else set()
    names = setting_fields()
    unknown: dict[str, str | None] = {}
    for variable in sorted({*environment, *files}):
        has_prefix = variable.upper().startswith(_PREFIX)
        name = variable.upper().removeprefix(_PREFIX).lower().replace("-", "_")
        if variable.upper() in _OF_OTHERS or not (has_prefix or variable in files):
            continue
        # Compared without the prefix, which makes all names look alike.
        nearest = meant(name, names)
        expected_name = f"{_PREFIX}{nearest.upper()}" if nearest else None
        # A file counts by its exact name only, and without the prefix it may be none of ours.
        is_known = name in names and (variable not in files or variable == expected_name)
        if not is_known and (has_prefix or name in names):
            unknown[variable] = expected_name
    return unknown
