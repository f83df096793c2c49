"""`make bench-gate`: whether rounds, small rounds or the control plane became slower than the repository has them.

Each number is a share of bare work: of only encoding the same rows with as many processes, in the same run. So the file
with the numbers fits any machine with two cores, more or less. Each is the best one of three runs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks import control, small_rounds, tiering
from benchmarks.encode import bare_encode_seconds
from examples.flights.environment import use_local_jars
from fluss_tiering.model.tiering import Claim

SHARES: Final = Path(__file__).with_name("shares.json")
LOSS: Final = 0.15
"""The loss of a share that fails."""
_RUNS: Final = 3
_SIZES: Final = tiering.Sizes(log=2_000_000, keyed=1_000_000, upserted=300_000, deleted=20_000)
_ROUNDS: Final = ("log table", "first snapshot", "round of changes")
_TABLES: Final = 30
_CHANGED_ROWS: Final = 100
_DRAINS: Final = 4
_CONTROLLED: Final = 2_000
_BEATING: Final = 100
_HEARTBEATS: Final = 500
_MILLION: Final = 1_000_000


def main(
    record: Annotated[bool, typer.Option(help=f"Write what was measured into {SHARES.name}.")] = False,
) -> None:
    """Measure shares of bare work, and fail if one is much smaller than that of the repository."""
    runs = [dict(_measure()) for _ in range(_RUNS)]
    shares = {name: round(max(run[name] for run in runs), 3) for name in runs[0]}
    if record:
        SHARES.write_text(json.dumps(shares, indent=2) + "\n")
    lost = False
    for name, before in json.loads(SHARES.read_text()).items():
        change = shares[name] / before - 1
        lost |= change < -LOSS
        sys.stdout.write(f"{name:<60} {before:>8} {shares[name]:>8} {change:>+7.0%}{' LOST' * (change < -LOSS)}\n")
    sys.exit(1 if lost else 0)


def _measure() -> Iterator[tuple[str, float]]:
    bare, measured = tiering.TieringBenchmark(_SIZES).run()
    for each in measured:
        if each.work in _ROUNDS:
            yield f"{each.work}: rows/s of bare encode", each.result.stats.rows / each.result.seconds / bare
    with tempfile.TemporaryDirectory(prefix="fluss-tiering-gate-") as text:
        folder = Path(text)
        # The machine may be faster or slower by now.
        million = bare_encode_seconds(_MILLION, tiering.CORES, folder)
        yield "small rounds while a million rows are encoded", _small_rounds_per_second(folder / "small") * million
        beats = _heartbeats_per_second(folder / "control")
        yield f"heartbeats of {_BEATING} tables while a million rows are encoded", beats * million


def _small_rounds_per_second(folder: Path) -> float:
    use_local_jars()
    folder.mkdir()
    with tiering.server(folder) as (target, client), tiering.session() as spark:
        tables = small_rounds.make_tables(client, "small", _TABLES, "1d")
        drains = small_rounds.Drains(target, client, spark, tables)
        drains.run(_CHANGED_ROWS, 2)
        drained = drains.run(_CHANGED_ROWS, _DRAINS)
        return drained.rounds / drained.seconds


def _heartbeats_per_second(folder: Path) -> float:
    control.make_tables(folder, _CONTROLLED)
    with control.running_server(folder) as running:
        paths = [control.table_path(number) for number in range(_BEATING)]
        claimed = running.client.claim_tables(paths, "bench", None, "bench")
        claims = [claim for claim in claimed if isinstance(claim, Claim)]
        p50, _ = control.percentiles(lambda: control.beat(running.client, claims), _HEARTBEATS)
        return 1e3 / p50


if __name__ == "__main__":
    typer.run(main)
