"""A plain model of leases, attempts and rounds, which says what the answer to each generated call must be.

It knows only what calls and answers told. What it cannot know, such as the effect of a call whose answer nobody waited
for, it does not judge.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from fluss_tiering.api.v1 import common_pb2
from fluss_tiering.api.v1 import kv_snapshot_leases_pb2 as leases_pb
from fluss_tiering.api.v1 import lake_tiering_pb2 as tiering_pb
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.wire.buckets import bucket_from_pb
from fluss_tiering.wire.leases import snapshots_from_pb
from fluss_tiering.wire.tables import path_from_pb

_CHANGES_ROUNDS: Final = frozenset(
    {"LakeTieringHeartbeat", "ClaimTables", "CancelTiering", "DropTable", "AlterTable", "ResumeTables"}
)
_SOON_MS: Final = 30_000
"""A lease that ends so soon may be over when the server answers."""


@dataclass(slots=True)
class Lease:
    """A lease: the snapshots that it pins, and when it ends."""

    pins: dict[Any, int] = field(default_factory=dict)
    ends: int = 0

    @property
    def sure(self) -> bool:
        return self.ends > time.time() * 1000 + _SOON_MS


@dataclass(slots=True)
class Round:
    """The newest round of a table."""

    epoch: int
    path: TablePath
    lease_id: str
    running: bool = True


class Model:
    """What the server must know.

    Attributes:
        judged: How many answers the model judged, by rule: so that a test sees that it judged any.
    """

    def __init__(self) -> None:
        self.judged: Counter[str] = Counter()
        self._leases: dict[str, Lease] = {}
        self._tokens: dict[str, int] = {}
        self._newest_token = 0
        self._unsure_leases: set[str] = set()
        self._rounds: dict[int, Round] = {}
        self._outcomes: dict[tuple[int, int], str] = {}
        self._unsure_paths: set[TablePath] = set()

    def unheard(self, method: str, request: Any) -> None:
        """Forget what a call may have changed whose answer nobody heard."""
        if hasattr(request, "lease_id"):
            self._unsure_leases.add(request.lease_id)
            if method == "AcquireKvSnapshotLease":
                # It may have begun an attempt.
                self._tokens.pop(request.lease_id, None)
        for renewal in getattr(request, "renewals", ()):
            self._unsure_leases.add(renewal.lease_id)
        if method in _CHANGES_ROUNDS:
            self._rounds.clear()
        if method in ("DropTable", "DropPartition"):
            self._unsure_leases |= self._leases.keys()
        if method == "DropTable":
            # The server may drop it later, in the middle of a round that begins after this.
            with suppress(FlussTieringError):
                self._unsure_paths.add(path_from_pb(request.table_path))

    def judge(self, method: str, request: Any, answer: Any) -> Iterator[str]:
        """Yield what is wrong with an answer, and learn from it."""
        handle = getattr(self, f"_{method}", None)
        if handle is not None:
            yield from handle(request, answer)

    def suggest(self, chance: random.Random, recall: Callable[[str], Any]) -> tuple[str, Any] | None:
        """Return a call that the model can judge, by the name of the method; None if nothing is known for it yet.

        Args:
            chance: The source of random numbers.
            recall: Returns an earlier message of a type, or None.
        """
        lease_id = f"judged {chance.randrange(3)}"
        token = self._tokens.get(lease_id)
        if token is not None:
            token = chance.choice((None, token, token, max(1, token - chance.randrange(1, 4))))
        kind = chance.choice(("acquire", "release", "drop", "list", "claim", "report", "report", "report"))
        if kind == "list":
            return "ListKvSnapshotLeases", leases_pb.ListKvSnapshotLeasesRequest()
        if kind == "drop":
            return "DropKvSnapshotLease", leases_pb.DropKvSnapshotLeaseRequest(lease_id=lease_id, attempt_token=token)
        if kind == "report" and self._rounds:
            table_id = chance.choice(list(self._rounds))
            epoch = max(0, self._rounds[table_id].epoch - chance.choice((0, 0, 1, 2, -1)))
            entry = tiering_pb.PbHeartbeatReqForTable(table_id=table_id, tiering_epoch=epoch)
            reports = {chance.choice(("tiering_tables", "tiering_tables", "finished_tables", "failed_tables")): [entry]}
            return "LakeTieringHeartbeat", tiering_pb.LakeTieringHeartbeatRequest(**reports)
        claim = recall("fluss_tiering.v1.ClaimTablesRequest")
        if kind in ("claim", "report") and claim is not None:
            return "ClaimTables", claim
        acquire = recall("fluss_tiering.v1.AcquireKvSnapshotLeaseRequest")
        if acquire is None:
            return None
        if kind == "release":
            tables = acquire.snapshots_to_lease
            buckets = [
                common_pb2.PbTableBucket(table_id=table.table_id, bucket_id=each.bucket_id)
                for table in tables
                for each in table.bucket_snapshots
            ]
            return "ReleaseKvSnapshotLease", leases_pb.ReleaseKvSnapshotLeaseRequest(
                lease_id=lease_id, buckets_to_release=buckets, attempt_token=token
            )
        return "AcquireKvSnapshotLease", leases_pb.AcquireKvSnapshotLeaseRequest(
            lease_id=lease_id,
            lease_duration_ms=3_600_000,
            snapshots_to_lease=acquire.snapshots_to_lease,
            allow_empty=True,
        )

    # Leases and attempts

    def _AcquireKvSnapshotLease(self, request: Any, answer: Any) -> Iterator[str]:  # noqa: N802 - named by the API
        asked, unavailable = (
            snapshots_from_pb(request.snapshots_to_lease),
            snapshots_from_pb(answer.unavailable_snapshots),
        )
        self.judged["acquire"] += 1
        if not unavailable.items() <= asked.items():
            yield f"L6: snapshots are unavailable that nobody asked for: {unavailable.items() - asked.items()}"
        if answer.attempt_token <= self._newest_token:
            yield f"L22: token {answer.attempt_token} is not above {self._newest_token}"
        self._newest_token = self._tokens[request.lease_id] = answer.attempt_token
        lease = self._leases.get(request.lease_id, Lease())
        if not lease.sure:
            lease = Lease()  # what it pinned before may have been dropped
            self._unsure_leases.discard(request.lease_id)
            known = not answer.expiration_time
        elif request.lease_id in self._unsure_leases and not answer.expiration_time:
            lease, known = Lease(), True  # a call that nobody heard of let go of all that it pinned
        else:
            known = True
        lease.pins |= {bucket: id_ for bucket, id_ in asked.items() if bucket not in unavailable}
        lease.ends = answer.expiration_time
        if lease.pins and not answer.expiration_time:
            yield f"L1: lease {request.lease_id} pins {len(lease.pins)} snapshots and has no end"
        if lease.pins or answer.expiration_time:
            self._leases[request.lease_id] = lease
        if not known and request.lease_id in self._unsure_leases:
            self._leases.pop(request.lease_id, None)

    def _RenewKvSnapshotLeases(self, request: Any, answer: Any) -> Iterator[str]:  # noqa: N802
        for asked, renewed in zip(request.renewals, answer.renewed, strict=True):
            lease = self._leases.get(asked.lease_id)
            if lease is not None and lease.sure and asked.lease_id not in self._unsure_leases:
                self.judged["renew"] += 1
                if renewed.HasField("error"):
                    yield f"L4: lease {asked.lease_id} goes on until {lease.ends} and was not renewed: {renewed.error}"
            if lease is not None and renewed.expiration_time:
                lease.ends = renewed.expiration_time

    def _ReleaseKvSnapshotLease(self, request: Any, answer: Any) -> Iterator[str]:  # noqa: N802
        yield from self._stale(request, answer)
        lease = self._leases.get(request.lease_id)
        if lease is not None and not answer.stale_attempt:
            for bucket in map(bucket_from_pb, request.buckets_to_release):
                lease.pins.pop(bucket, None)
            if not lease.pins:
                del self._leases[request.lease_id]

    def _DropKvSnapshotLease(self, request: Any, answer: Any) -> Iterator[str]:  # noqa: N802
        yield from self._stale(request, answer)
        lease = self._leases.get(request.lease_id)
        if (
            lease is not None
            and lease.sure
            and request.lease_id not in self._unsure_leases
            and not answer.stale_attempt
        ):
            self.judged["drop"] += 1
            if not answer.dropped:
                yield f"L8: lease {request.lease_id} goes on until {lease.ends} and was not there to drop"
        if answer.dropped:
            self._leases.pop(request.lease_id, None)
            self._unsure_leases.discard(request.lease_id)

    def _ListKvSnapshotLeases(self, request: Any, answer: Any) -> Iterator[str]:  # noqa: N802
        if request.page_token or answer.next_page_token:
            return
        listed = {each.lease_id: snapshots_from_pb(each.snapshots) for each in answer.leases}
        for lease_id, lease in self._leases.items():
            if request.lease_id in ("", lease_id) and lease.sure and lease_id not in self._unsure_leases:
                self.judged["list"] += 1
                if not lease.pins.items() <= listed.get(lease_id, {}).items():
                    lost = lease.pins.items() - listed.get(lease_id, {}).items()
                    yield f"L3: lease {lease_id} no longer pins {lost}, until {lease.ends}"

    def _stale(self, request: Any, answer: Any) -> Iterator[str]:
        newest = self._tokens.get(request.lease_id)
        if newest is None or request.lease_id in self._unsure_leases:
            return
        self.judged["stale"] += 1
        stale = request.HasField("attempt_token") and request.attempt_token < newest
        if stale != answer.stale_attempt:
            yield (
                f"L22: attempt {request.attempt_token} of lease {request.lease_id}, whose newest is {newest}, "
                f"{'was let through' if stale else 'is called stale'}"
            )

    # Rounds

    def _ClaimTables(self, request: Any, answer: Any) -> Iterator[str]:  # noqa: N802
        for claim in answer.claims:
            if claim.HasField("error"):
                if claim.error.code == ErrorCode.TABLE_PARKED:
                    yield from self._parked(path_from_pb(claim.table_path), request.lease_id)
                continue
            self.judged["claim"] += 1
            before = self._rounds.get(claim.table_id)
            if before is not None and claim.tiering_epoch <= before.epoch:
                yield f"S3: table {claim.table_id} goes from epoch {before.epoch} to {claim.tiering_epoch}"
            if before is not None and before.running and before.lease_id != request.lease_id:
                yield f"S22: table {claim.table_id} was claimed in the middle of epoch {before.epoch}"
            if before is not None and before.running:
                self._outcomes[claim.table_id, before.epoch] = "Failed"
            self._rounds[claim.table_id] = Round(claim.tiering_epoch, path_from_pb(claim.table_path), request.lease_id)

    def _parked(self, path: TablePath, lease_id: str) -> Iterator[str]:
        """Learn from a claim that was refused because the table is parked.

        The claim may be what parked it: it supersedes a round of its own lease, and many rounds in a row that end
        without an outcome park the table.
        """
        for table_id, known in self._rounds.items():
            if known.path == path and known.running:
                self.judged["parked"] += 1
                if known.lease_id != lease_id:
                    yield f"S19: table {table_id} is parked in the middle of epoch {known.epoch}"
                known.running = False
                self._outcomes[table_id, known.epoch] = "Failed"

    def _LakeTieringHeartbeat(self, request: Any, answer: Any) -> Iterator[str]:  # noqa: N802
        for kind, entries, answers in (
            ("Failed", request.failed_tables, answer.failed_table_resp),
            ("Tiering", request.tiering_tables, answer.tiering_table_resp),
            ("Tiered", request.finished_tables, answer.finished_table_resp),
        ):
            twice = {table_id for table_id, count in Counter(each.table_id for each in entries).items() if count > 1}
            for entry, answered in zip(entries, answers, strict=True):
                if entry.table_id in twice or entry.coordinator_epoch not in (0, answer.coordinator_epoch):
                    self._rounds.pop(entry.table_id, None)
                    continue
                yield from self._report(kind, entry, answered)
        for forced in request.force_finished_tables:
            # It is pending at once under the next epoch, and may be handed out with the same answer.
            self._rounds.pop(forced, None)
        if answer.HasField("tiering_table"):
            given = answer.tiering_table
            known = self._rounds.get(given.table_id)
            if known is not None and known.running:
                yield f"S22: table {given.table_id} was handed out in the middle of epoch {known.epoch}"
            self._rounds[given.table_id] = Round(given.tiering_epoch, path_from_pb(given.table_path), request.lease_id)

    def _report(self, kind: str, entry: Any, answered: Any) -> Iterator[str]:
        known = self._rounds.get(entry.table_id)
        if known is None:
            return
        code = answered.error.code if answered.HasField("error") else None
        if code == ErrorCode.TABLE_NOT_EXIST and known.path in self._unsure_paths:
            self._rounds.pop(entry.table_id)
            return
        runs = known.running and known.epoch == entry.tiering_epoch
        ended = self._outcomes.get((entry.table_id, entry.tiering_epoch))
        if runs or (kind != "Tiering" and ended == kind):
            expected = None
        elif kind != "Tiering" and ended is None and entry.tiering_epoch < known.epoch:
            return  # the round may have ended so, unknown to the model: then this is a repetition
        elif entry.tiering_epoch < known.epoch or known.running:
            expected = "FENCED_TIERING_EPOCH"
        else:
            return  # the table may have become pending under the next epoch meanwhile
        self.judged["report"] += 1
        if code != expected:
            yield (
                f"S5, S6, S9: {kind} for epoch {entry.tiering_epoch} of table {entry.table_id}, with {known}, "
                f"was answered with {code}: expected {expected}"
            )
        if code is None and known.running and known.epoch == entry.tiering_epoch and kind != "Tiering":
            known.running = False
            self._outcomes[entry.table_id, entry.tiering_epoch] = kind

    def _CancelTiering(self, request: Any, answer: Any) -> Iterator[str]:  # noqa: N802
        yield from self._stale(request, answer)
        for ended in answer.cancelled_rounds:
            known = self._rounds.get(ended.table_id)
            if known is not None and known.epoch == ended.tiering_epoch:
                self.judged["cancel"] += 1
                if known.lease_id != request.lease_id:
                    yield f"L22: lease {request.lease_id} cancelled a round of lease {known.lease_id}"
                known.running = False
                self._outcomes[ended.table_id, ended.tiering_epoch] = "Failed"

    def _DropTable(self, request: Any, answer: Any) -> Iterator[str]:  # noqa: N802
        del answer
        # Its id is not named, and its pins are gone with it.
        self._rounds.clear()
        self._leases.clear()
        yield from ()

    def _DropPartition(self, request: Any, answer: Any) -> Iterator[str]:  # noqa: N802
        yield from self._DropTable(request, answer)

    def _AlterTable(self, request: Any, answer: Any) -> Iterator[str]:  # noqa: N802
        del request
        # Its tiering may have been switched off.
        self._rounds.pop(answer.table.table_id, None)
        yield from ()
