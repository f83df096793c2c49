"""`make torture`: tables, histories and faults are made up from seeds, run for real, and judged by other readers."""

from __future__ import annotations

import argparse
import faulthandler
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fetch_fluss_jars import VERSIONS
from torture.defects import DEFECTS
from torture.judging.checks import WrongError
from torture.makers.cases import CASES
from torture.makers.histories import make_case, make_plan
from torture.plan import Plan
from torture.report import Report, say
from torture.run import run_plan
from torture.shrink import shrink
from torture.steps.rounds import TOO_MUCH_MEMORY
from torture.world import PARTS, World

_SHOWN: Final = 1500
_JUDGE_SECONDS: Final = 3.0
"""How long a judge is asked about one table after a round. The rows are always read as well."""


def main() -> int:
    """Run plans with the options of the command line."""
    options = _options()
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = Report()
    seed = options.seed
    first = _plan(options, seed)
    if options.defect:
        # Some are in what this process does for Airflow. The driver and its workers do the same.
        DEFECTS[options.defect].switch_on()
    with (
        tempfile.TemporaryDirectory(prefix="torture-", ignore_cleanup_errors=True) as folder,
        World(Path(folder), first.storage, options.defect, first.parts, fluss=options.fluss) as world,
    ):
        world.judges.seconds = None if options.plan else _JUDGE_SECONDS
        while True:
            plan = _plan(options, seed)
            kind = _run(world, plan, report)
            seed += 1
            if kind is not None and not options.keep_going:
                _shrink(world, plan, kind, options.shrink_minutes)
                break
            over = report.minutes > options.minutes if options.plans is None else seed - options.seed == options.plans
            if over or options.plan:
                break
    report.show(range(options.seed, seed))
    return 1 if report.found else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make torture",
        description=__doc__,
        epilog=_names(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first plan (default: 1)")
    parser.add_argument("--minutes", type=float, default=5, help="how long plans are begun (default: 5)")
    parser.add_argument("--plans", type=int, help="how many plans to run, instead of a time")
    parser.add_argument("--storage", choices=("embedded", "cluster"), default="embedded", help="where the tables are")
    parser.add_argument(
        "--fluss", choices=tuple(VERSIONS), default="0.9.1", help="the version of the cluster (default: 0.9.1)"
    )
    parser.add_argument(
        "--with",
        dest="parts",
        action="append",
        default=[],
        choices=sorted(PARTS),
        metavar="PART",
        help="add a part to the embedded storage; may be given several times",
    )
    parser.add_argument("--plan", type=Path, help="run the plan of this file, once")
    parser.add_argument("--case", choices=sorted(CASES), metavar="CASE", help="make plans of one case only")
    parser.add_argument("--defect", choices=sorted(DEFECTS), metavar="DEFECT", help="put a defect back that was mended")
    parser.add_argument("--shrink-minutes", type=float, default=5, help="how long a plan is made smaller (default: 5)")
    parser.add_argument("--keep-going", action="store_true", help="go on after something was found")
    options = parser.parse_args()
    if options.storage == "cluster" and (reason := VERSIONS[options.fluss].why_missing()):
        parser.error(reason)
    return options


def _names() -> str:
    """Return what the options `--case`, `--with` and `--defect` may name, each name with a sentence about it."""
    named = {
        "names of --case": {name: _first_line(make) for name, make in CASES.items()},
        "names of --with": PARTS,
        "names of --defect": {name: _first_line(planted.switch_on) for name, planted in DEFECTS.items()},
    }
    return "\n\n".join(
        "\n".join((f"{title}:", *(f"  {name:<20}{about}" for name, about in entries.items())))
        for title, entries in named.items()
    )


def _first_line(function: Callable[..., object]) -> str:
    return (function.__doc__ or "").partition("\n")[0]


def _plan(options: argparse.Namespace, seed: int) -> Plan:
    if options.plan:
        return Plan.load(options.plan)
    if options.case:
        return make_case(options.case, seed, options.storage, options.parts)
    return make_plan(seed, options.storage, options.parts)


def _run(world: World, plan: Plan, report: Report) -> str | None:
    """Run a plan, and return the kind of what it found, if it found something."""
    began = time.monotonic()
    kind, outcome = None, "ok"
    try:
        run_plan(world, plan, report.tally)
    except WrongError as error:
        kind, outcome = error.kind, f"WRONG: {error}"
        if world.cluster is not None and world.cluster.missed_a_table():
            # A known defect of Fluss 0.9.1, which may be the reason of anything.
            world.cluster.heal()
            report.tally.left_out["plan: Fluss's coordinator missed a table"] += 1
            kind, outcome = None, f"left out: {error}"
    except Exception as error:  # noqa: BLE001 - one plan that cannot be run must not hide what the others find
        traceback.print_exc()
        kind, outcome = f"the torture itself fails: {error!r:.80}", f"BROKEN: {error!r}"
    if kind is not None:
        report.add(kind, plan.seed, outcome)
        if outcome.startswith("BROKEN") or kind == TOO_MUCH_MEMORY:
            # What the plan left in the driver, which remembers its workers' peaks, must not meet the next plan.
            world.start_again()
    seconds = time.monotonic() - began
    say(f"seed {plan.seed}: {len(plan.tables)} tables, {len(plan.steps)} steps, {seconds:.1f} s, {outcome[:_SHOWN]}")
    return kind


def _shrink(world: World, plan: Plan, kind: str, minutes: float) -> None:
    """Make the plan smaller, and print what is left as a file for `--plan`."""
    tries = Report()
    world.judges.seconds = None
    shrunk = shrink(plan, lambda tried: _run(world, tried, tries) == kind, minutes * 60)
    file = Path(tempfile.gettempdir()) / f"torture-{plan.seed}.json"
    shrunk.save(file)
    say(f"a small plan that finds the same, {file}:")
    say(shrunk.to_json())


if __name__ == "__main__":
    sys.exit(main())
