"""`make torture`: tables, histories and faults are made up from seeds, run for real, and judged by other readers."""

from __future__ import annotations

import argparse
import faulthandler
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from torture.checks import WrongError
from torture.makers.histories import make_plan
from torture.plan import Plan
from torture.report import Report, say
from torture.run import PlanRun
from torture.world import World


def main() -> int:
    """Run plans with the options of the command line."""
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first plan (default: 1)")
    parser.add_argument("--minutes", type=float, default=5, help="how long plans are begun (default: 5)")
    parser.add_argument("--plans", type=int, help="how many plans to run, instead of a time")
    parser.add_argument("--storage", choices=("embedded",), default="embedded", help="where the tables are")
    parser.add_argument("--plan", type=Path, help="run the plan of this file, once")
    parser.add_argument("--keep-going", action="store_true", help="go on after something was found")
    options = parser.parse_args()
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = Report()
    seed = options.seed
    with (
        tempfile.TemporaryDirectory(prefix="torture-", ignore_cleanup_errors=True) as folder,
        World(Path(folder)) as world,
    ):
        while True:
            _run(world, Plan.load(options.plan) if options.plan else make_plan(seed, options.storage), report)
            seed += 1
            if options.plan or (report.found and not options.keep_going):
                break
            if seed - options.seed == options.plans or (not options.plans and report.minutes > options.minutes):
                break
    report.show(range(options.seed, seed))
    return 1 if report.found else 0


def _run(world: World, plan: Plan, report: Report) -> None:
    began = time.monotonic()
    try:
        PlanRun(world, plan, report.tally).run()
        outcome = "ok"
    except WrongError as error:
        report.add(error.kind, plan.seed, str(error))
        outcome = f"WRONG: {error}"
    except Exception as error:  # noqa: BLE001 - one plan that cannot be run must not hide what the others find
        traceback.print_exc()
        report.add(f"the torture itself fails: {error!r:.80}", plan.seed, repr(error))
        outcome = f"BROKEN: {error!r}"
    seconds = time.monotonic() - began
    say(f"seed {plan.seed}: {len(plan.tables)} tables, {len(plan.steps)} steps, {seconds:.1f} s, {outcome}")


if __name__ == "__main__":
    sys.exit(main())
