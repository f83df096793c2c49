"""The metrics of the server as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fluss_tiering.model.clock import Clock, SystemClock
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.server.components import ServerComponents
from fluss_tiering.server.edge.callers.issuer_keys import IssuerKeys
from fluss_tiering.server.edge.callers.static_tokens import StaticTokens
from fluss_tiering.server.edge.tls import ServerTls
from fluss_tiering.server.edge.watched_files import WatchedFiles
from fluss_tiering.server.metrics.tables import read_tables, tables_text


class Replica(Protocol):
    """One of several servers, as far as metrics show it.

    Attributes:
        database_reachable: Whether the database answered last time.
        waits_for_data_folder: Whether the server leads but cannot open the data folder.
    """

    database_reachable: bool
    waits_for_data_folder: bool


class ServerCollector(Collector):
    """Collects the metrics of a server at each scrape.

    It runs in the thread of the scrape and reads copies, so that the control thread is not disturbed. A standby server
    has no components and exports only what it needs to take over.

    Attributes:
        replica: The server as one of several; None for a single server.
        tls: The server's certificates; None without TLS.
        tokens: The static tokens of callers; None if the server knows none.
        watched_files: The files that say who may call, and those of TLS.
        issuer_keys: The keys of the issuer of OpenID Connect; None without one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.replica: Replica | None = None
        self.tls: ServerTls | None = None
        self.tokens: StaticTokens | None = None
        self.watched_files: Sequence[WatchedFiles[object]] = ()
        self.issuer_keys: IssuerKeys | None = None
        self._active: ServerComponents | None = None

    def start(self, components: ServerComponents) -> None:
        """Begin to export the components of a server that became the active one."""
        self._active = components

    def stop(self) -> None:
        """Stop exporting components."""
        self._active = None

    def collect(self) -> Iterator[Metric]:
        """Yield the present values of the metrics."""
        active = self._active
        yield _gauge(
            "fluss_coordinator_activeCoordinatorCount",
            "1 while this server is the active one, 0 while it waits to be.",
            int(active is not None and _leads(active)),
        )
        behind_ms = self._clock.behind_ms() if isinstance(self._clock, SystemClock) else 0
        yield _gauge(
            "fluss_tiering_clock_behind_seconds",
            "How far the server's clock is behind the machine's, which was set; below zero if it is ahead.",
            behind_ms / 1000,
        )
        yield _gauge(
            "fluss_tiering_database_reachable",
            "1 while this server reaches the database that it shares with others, else 0; 1 for a single server.",
            int(self.replica is None or self.replica.database_reachable),
        )
        yield _gauge(
            "fluss_tiering_take_over_waits",
            "1 while this server should be the active one but another server holds the data folder, else 0.",
            int(self.replica is not None and self.replica.waits_for_data_folder),
        )
        if self.tls is not None:
            left = self.tls.expires - datetime.now(UTC)
            yield _gauge(
                "fluss_tiering_tls_certificate_expiry_days",
                "Days until the server's certificate expires; below zero once it has.",
                left.total_seconds() / 86_400,
            )
        yield from self._credential_metrics()
        if active is not None:
            yield from _component_metrics(active)

    def _credential_metrics(self) -> Iterator[Metric]:
        if self.issuer_keys is not None:
            yield _gauge(
                "fluss_tiering_issuer_keys_failed_reads",
                "How often in a row the keys of the issuer of OpenID Connect could not be read.",
                self.issuer_keys.failures,
            )
        if self.watched_files:
            stale = GaugeMetricFamily(
                "fluss_tiering_unread_files",
                "1 while the present content of files is not in force, because they cannot be read, else 0.",
                labels=("of",),
            )
            for each in self.watched_files:
                stale.add_metric((each.what,), int(not each.is_in_force))
            yield stale
        if self.tokens is not None:
            expiry = GaugeMetricFamily(
                "fluss_tiering_token_expiry_days",
                "Days until a token expires; below zero once it has.",
                labels=("id", "name"),
            )
            for token, days in self.tokens.days_until_expiry():
                expiry.add_metric((token.id, token.name), days)
            yield expiry

    def tables_text(self) -> str:
        """Return the present values of each table's metrics in Prometheus's text format."""
        active = self._active
        if active is None:
            return ""
        tiering, backlogs = active.managers.tiering, active.managers.backlogs
        return tables_text(
            read_tables(tiering.tables.all(), backlogs, tiering.totals, self._clock.now_ms()), tiering.totals.lost
        )

    def describe(self) -> Iterator[Metric]:
        """Return nothing. Without this method a registry would collect once to learn the names."""
        return iter(())


def _leads(components: ServerComponents) -> bool:
    """Return whether a server with these components certainly leads. It keeps them for a moment after that."""
    try:
        components.check()
    except FlussTieringError:
        return False
    return True


def _component_metrics(components: ServerComponents) -> Iterator[Metric]:
    tiering, leases = components.managers.tiering, components.managers.leases
    tables = tiering.tables.all()
    states = Counter(table.status.state for table in tables)
    table_count = components.backend.table_count()
    yield _gauge("fluss_coordinator_tableCount", "Tables of the storage.", table_count)
    yield _gauge("fluss_coordinator_lakeTableCount", "Tables that are tiered.", len(tables))
    yield _gauge(
        "fluss_coordinator_lakeTiering_pendingTablesCount",
        "Tables that wait to be tiered.",
        states[TieringState.PENDING],
    )
    yield _gauge(
        "fluss_coordinator_lakeTiering_runningTablesCount",
        "Tables that are being tiered.",
        states[TieringState.TIERING],
    )
    by_status = GaugeMetricFamily("fluss_tiering_tables", "Tables by their tiering status.", labels=("status",))
    for state in TieringState:
        by_status.add_metric((state.value,), states[state])
    yield by_status
    parked = sum(table.status.parked for table in tables)
    yield _gauge("fluss_tiering_parked_tables", "Tables that failed too often and wait to be resumed.", parked)
    yield _gauge("fluss_coordinator_kvSnapshotLeaseCount", "KV snapshot leases.", leases.lease_count)
    yield _gauge(
        "fluss_coordinator_leasedKvSnapshotCount",
        "KV snapshots that leases pin, counted for each.",
        leases.leased_snapshot_count,
    )
    yield _gauge(
        "fluss_tiering_kv_snapshot_collection_stopped",
        "1 while no KV snapshot is collected, since a lease cannot be loaded.",
        int(leases.collection_stopped_reason is not None),
    )
    yield _gauge(
        "fluss_tiering_control_turn_max_seconds",
        "How long one call held the control thread at most, in the last minute or two.",
        components.threads.turns.longest_s(),
    )
    yield _gauge("fluss_tiering_kv_scanners", "KV scanners that are open.", components.scanners.open_count)
    yield _gauge("fluss_tiering_status_watchers", "Clients that watch statuses.", len(tiering.broadcaster))


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(name, meaning, value=value)
