"""`make fluss-versions`: writes the page that says what works with which version of Fluss, from the results of tests.

The results are JUnit files, which `pytest --junitxml=FILE` writes. A feature works with a version of Fluss if all tests
of its files passed that ran with this version.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from fetch_fluss_jars import VERSIONS
from markdown_text import table

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "fluss-versions.md"
_STORAGE: Final = "tests/storage/fluss"
_CLUSTER: Final = "tests/server/cluster"
_ROUND: Final = "tests/spark/round"
_READERS: Final = "verification/fluss_readers"
FEATURES: Final[dict[str, tuple[str, ...]]] = {
    "Tables, options and partitions are created, altered and dropped": (
        f"{_STORAGE}/test_fluss_storage.py",
        f"{_STORAGE}/rpc/test_fluss_tables.py",
        f"{_STORAGE}/test_fluss_table_cache.py",
        f"{_STORAGE}/test_fluss_partitions.py",
    ),
    "Rows are written with `put`": (f"{_STORAGE}/test_fluss_writer.py",),
    "Logs are read from leaders and from the remote folder": (f"{_STORAGE}/reading",),
    "KV snapshots are leased": (f"{_STORAGE}/rpc/test_fluss_kv_snapshots.py", f"{_CLUSTER}/test_cluster_leases.py"),
    "Tables are scanned": (f"{_STORAGE}/test_fluss_scans.py", f"{_CLUSTER}/test_cluster_scans.py"),
    "Leaders scan their buckets in sessions": (
        f"{_STORAGE}/test_scan_sessions.py",
        f"{_STORAGE}/test_scan_session_ends.py",
        f"{_CLUSTER}/test_scan_rules.py",
    ),
    "The server is the cluster's tiering service": (
        f"{_CLUSTER}/test_cluster_claims.py",
        f"{_CLUSTER}/test_cluster_lake.py",
        f"{_CLUSTER}/test_cluster_server.py",
        f"{_CLUSTER}/test_cluster_unknown_tables.py",
        f"{_STORAGE}/rpc/test_fluss_lake.py",
    ),
    "Rounds commit exactly once, also of partitioned tables": (
        f"{_ROUND}/test_cluster_exactly_once.py",
        f"{_ROUND}/test_cluster_partitions.py",
        f"{_ROUND}/test_cluster_reading.py",
    ),
    "Merge engines and numbered columns": (f"{_ROUND}/test_merge_engines.py",),
    "Columns are added to a tiered table": (f"{_ROUND}/test_cluster_added_columns.py",),
    "Rows that expire (`table.kv.ttl`)": ("tests/spark/audit/test_expiring_rows.py",),
    'Queries by `format("fluss")`': ("tests/spark/source/test_cluster_source.py",),
    "Maintenance of lake tables": ("tests/spark/maintenance/test_cluster_maintenance.py",),
    "The lake is read by Fluss's Java reader": (f"{_READERS}/test_lake_reader.py",),
    "Flink SQL's union read": (f"{_READERS}/test_union_read.py",),
    "Rounds by Fluss's Flink service and by this server in turn": (f"{_READERS}/test_rounds_in_turn.py",),
    "Another coordinator takes over in mid-round": (
        f"{_CLUSTER}/test_cluster_coordinators.py",
        f"{_ROUND}/test_rounds_and_coordinators.py",
    ),
    "The leading coordinator is killed in each step of a round": (f"{_CLUSTER}/test_coordinator_elections.py",),
    "ZooKeeper or a tablet server fails in mid-round": (f"{_CLUSTER}/test_cluster_failures.py",),
    "An upgrade from 0.9.1 in place": (f"{_READERS}/test_upgrade.py",),
}
"""What users ask for -> the test files, or folders of test files, that show it."""
_INTRODUCTION: Final = """# Versions of Fluss

This page is made from the results of the tests, by `make fluss-versions`. A number is the number of tests that ran
against a real cluster of that version and passed. *Not in Fluss 0.9.1* means that this version of Fluss does not have
the feature. *Not run* means that the feature has tests, but the run for this page left them out, mostly because each of
them takes minutes. [How to connect a cluster](../how-to/connect-a-cluster.md) says what to mind.
"""
_NEW: Final = {
    "Leaders scan their buckets in sessions": "1.0",
    "Columns are added to a tiered table": "1.0",
    "The leading coordinator is killed in each step of a round": "1.0",
}
"""The features that a version of Fluss was the first to have."""
_NOT_RUN: Final = "not run"
_CLOSING: Final = """
1.0 stands for a build of Fluss's main branch of 2026-08-22, a month before 1.0.0: the servers of the release are not on
Maven Central. What only the release has was compared with the classes of its Java client, and not with a server:

- KV snapshots whose values have a tag (`table.kv.value-layout-version` 2);
- `table.kv.ttl`;
- tables whose number of buckets was changed;
- new lake tables, which the release makes in the [clean layout](lake.md).

Anything else is refused by name, for the table that it concerns: another magic of log batches, another layout of
values, or a call that the cluster does not serve.
"""


@dataclass
class Tally:
    """The tests of a feature with one version."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)


def read(files: Iterable[Path]) -> dict[tuple[str, str], Tally]:
    """Return the tests of each test file and version that passed or failed; of several results, the last one counts.

    Raises:
        SystemExit: A file is not there, or is no JUnit file.
    """
    outcomes: dict[tuple[str, str, str], bool] = {}
    for path in files:
        try:
            root = ET.parse(path).getroot()
        except (OSError, ET.ParseError) as error:
            sys.exit(f"error: {path} is no result of tests: {error}; write one with `pytest --junitxml={path}`")
        for case in root.iter("testcase"):
            name = case.get("name", "")
            found = re.search(r"fluss-(\d+(?:\.\d+)+)", name)
            if found is None or case.find("skipped") is not None:
                continue
            file = case.get("classname", "").replace(".", "/") + ".py"
            outcomes[file, found[1], name] = case.find("failure") is None and case.find("error") is None
    tallies: dict[tuple[str, str], Tally] = {}
    for (file, version, name), passed in outcomes.items():
        tally = tallies.setdefault((file, version), Tally())
        if passed:
            tally.passed += 1
        else:
            tally.failed.append(name)
    return tallies


def page(tallies: dict[tuple[str, str], Tally]) -> str:
    """Return the page."""
    rows = [
        (feature, *(_cell(tallies, files, version) or _without_tests(feature, version) for version in VERSIONS))
        for feature, files in FEATURES.items()
    ]
    return _INTRODUCTION + table(("What", *VERSIONS), rows) + _CLOSING


def _cell(tallies: dict[tuple[str, str], Tally], files: Sequence[str], version: str) -> str:
    chosen = [
        tally
        for (file, of_version), tally in tallies.items()
        if of_version == version and any(file == each or file.startswith(f"{each}/") for each in files)
    ]
    failed = [name for tally in chosen for name in tally.failed]
    if failed:
        return f"**no**: {', '.join(failed)}"
    return str(sum(tally.passed for tally in chosen)) if chosen else ""


def _without_tests(feature: str, version: str) -> str:
    """Return why no test of a feature ran with a version."""
    first, versions = _NEW.get(feature), list(VERSIONS)
    is_older = first is not None and versions.index(version) < versions.index(first)
    return f"not in Fluss {version}" if is_older else _NOT_RUN


def main(files: Sequence[str]) -> int:
    """Write the page from these files."""
    if not files:
        sys.exit("error: expected files that `pytest --junitxml=FILE` has written")
    PAGE.write_text(page(read(map(Path, files))))
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}: written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
