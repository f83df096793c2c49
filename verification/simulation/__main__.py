"""`make simulate`: runs the simulation once and shows its progress and result. If a check fails, it exits with 1."""

from __future__ import annotations

import argparse
import random
import sys
from contextlib import nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from simulation.defects import DEFECTS
from simulation.world import Report, World


def main() -> int:
    """Run the simulation with the options of the command line."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10_000, help="how many rounds to begin (default: 10000)")
    parser.add_argument("--seed", type=int, help="the seed of the run to repeat (default: a new seed)")
    parser.add_argument("--sql", action="store_true", help="use the SQL store in memory instead of its model")
    parser.add_argument("--defect", choices=sorted(DEFECTS), help="switch on a planted defect")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    console = Console(highlight=False, soft_wrap=True)
    columns = (TextColumn("rounds"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        DEFECTS[options.defect].switch_on() if options.defect else nullcontext(),
        Progress(*columns, console=console) as progress,
    ):
        task = progress.add_task("rounds", total=options.rounds)
        report = World(seed, sql=options.sql).run(
            options.rounds, lambda rounds: progress.update(task, completed=min(rounds, options.rounds))
        )
    return _show(report, console)


def _show(report: Report, console: Console) -> int:
    if report.violation is not None:
        console.print("the last events:", *report.trace, sep="\n", markup=False)
    table = Table(box=None, show_header=False, padding=(0, 1))
    for name, count in report.counters.items():
        table.add_row(name, f"{count:,}")
    console.print(table)
    if report.violation is not None:
        console.print(f"VIOLATION: {report.violation}", markup=False, style="red")
        console.print(f"seed {report.seed}: --seed {report.seed} replays this run")
        return 1
    counters = report.counters
    console.print(
        f"{counters['rounds']:,} rounds, {counters['lost rows']} lost and {counters['doubled rows']} doubled rows, "
        f"seed {report.seed}, digest {report.digest[:16]}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
