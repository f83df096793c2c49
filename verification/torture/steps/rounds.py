"""Rounds: with faults, beside maintenance and users of the lake, and again until nothing is left to tier."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from fluss_tiering.model.table_options import LAKE_COMMIT_BRANCH, commit_branch_of
from torture.faults.rounds import calls_met, meet, wait
from torture.judging.checks import WrongError
from torture.plan import Step
from torture.processes import CommandFailedError, DriverDiedError
from torture.steps.beside import Beside, beside_of
from torture.steps.checking import check
from torture.steps.running import Running

TOO_MUCH_MEMORY: Final = "a worker uses too much memory"
_LOGGER: Final = logging.getLogger("torture.acquire")
_MARKERS = itertools.count(1)
_RETRIES: Final = 40
_PAUSE_S: Final = 0.5
_REPEATS: Final = 4
_LIMITED_ROUNDS: Final = 3
_LEASE_MS: Final = 600_000


def tier(run: Running, step: Step) -> None:
    """Tier tables, with the step's fault if it has one, and compare them with the model."""
    names = [name for name in step["tables"] if name in run.infos]
    if names:
        tier_tables(run, names, step, step.get("fault"))


def acquired_again(run: Running, step: Step) -> None:
    """Run the acquire task of a lease again while a round of it goes on, as Airflow does if a sibling is cleared.

    If another attempt began, the callback of the sibling would cancel it, and thereby the round.
    """
    # Airflow is needed here only. It makes a folder at its import.
    os.environ.setdefault("AIRFLOW_HOME", str(run.world.folder / "airflow"))
    from airflow_provider_fluss import attempt  # noqa: PLC0415

    name, driver = step["table"], run.world.driver
    marker = run.world.folder / f"marker-{next(_MARKERS)}"
    fault = {"what": "stop", "when": "before", "step": "prepare", "marker": str(marker)}
    wanted = _wanted(run, [name], step)
    driver.begin("tier", server=run.world.target, fault=fault, **wanted)
    wait(lambda: marker.exists() or driver.has_answered())
    try:
        lease_id = wanted["options"]["lease_id"]
        client, path = run.world.client, run.infos[name].path
        before = client.lease_outcome(lease_id).newest_attempt_token
        token = attempt.continue_or_begin(client, lease_id, [path], _LEASE_MS, submit=None, log=_LOGGER)
        if token != before:
            client.cancel_tiering(lease_id, token, "another attempt was cleared")
    finally:
        driver.signal(signal.SIGCONT)
    (result,) = driver.end()["rounds"]
    if result["error"]:
        raise WrongError("a healthy round is cancelled by another attempt", result["error"])
    run.models[name].tiered()
    check(run, name, seed=0)


def tier_tables(run: Running, names: list[str], step: Step, fault: Step | None) -> None:
    """Tier tables until everything that was written is in the lake, and compare them with the model.

    Raises:
        WrongError: a round failed without a reason, or something was not as it must be.
    """
    if fault is not None:
        _faulty_round(run, names, step, fault)
    incomplete: list[str] = []
    for result in _tier_again(run, names, step, faulty=fault is not None):
        name = result["table"].rpartition(".")[2]
        if result["error"]:
            raise WrongError(f"a round fails: {class_of(result['error'])}", f"{name}: {result['error']}")
        run.tally.counts["rounds"] += 1
        if not result["complete"]:
            run.tally.counts["rounds that stopped at a limit"] += 1
            incomplete.append(name)
            continue
        if _publishes(run, name, step):
            run.models[name].tiered()
        _look_at_memory(run, result["peak_bytes"])
    for name in names:
        # Main of a lake table has no snapshot before its first publication.
        if name not in incomplete and not (step.get("hold") and name not in run.lake_exists):
            check(run, name, seed=step.get("seed", 0), light=bool(step.get("light")))
    if incomplete:
        # The last one of them has no limit.
        again = {**step, "left": step.get("left", _LIMITED_ROUNDS) - 1}
        again.pop("beside", None)
        tier_tables(run, incomplete, again if again["left"] else {**again, "options": {}}, None)


def _publishes(run: Running, name: str, step: Step) -> bool:
    """Publish what a round has committed to a branch, and return whether readers see it: always without a branch."""
    if commit_branch_of(run.planned(name).properties) == LAKE_COMMIT_BRANCH.default:
        return True
    if step.get("hold"):
        return False
    answer = run.world.call("publish", table=run.path(name))
    # Before its first row, a table has nothing to publish.
    if answer["error"] and (name in run.lake_exists or run.models[name].pending):
        raise WrongError(f"a publication fails: {class_of(answer['error'])}", f"{name}: {answer['error']}")
    run.tally.counts["publications"] += 1
    return True


def _look_at_memory(run: Running, peak_bytes: int) -> None:
    counts = run.tally.counts
    largest = "largest memory of a worker in bytes"
    counts[largest] = max(counts[largest], peak_bytes)
    if peak_bytes > run.world.most_worker_bytes:
        raise WrongError(TOO_MUCH_MEMORY, f"{peak_bytes:,} bytes")


def _tier_again(run: Running, names: list[str], step: Step, *, faulty: bool) -> list[dict[str, Any]]:
    """Tier until no table fails. Only after a fault, or beside a user's change, a table may fail a few times."""
    done: dict[str, dict[str, Any]] = {}
    failures: Counter[tuple[str, str | None]] = Counter()
    beside: Beside | None = beside_of(run, step)
    disturbed = beside.table if beside is not None and beside.changes_rows else None
    for _ in range(_RETRIES):
        wanted = [name for name in names if name not in done]
        if not wanted:
            break
        command = beside.command if beside is not None else None
        answer = run.world.call("tier", fault=None, beside=command, **_wanted(run, wanted, step))
        if beside is not None:
            beside.happened(answer["beside"])
            beside = None
        for name, result in zip(wanted, answer["rounds"], strict=True):
            failures[name, result["error"]] += 1
            may_fail = faulty or name == disturbed
            # The same error again and again does not come from the fault.
            if not result["error"] or not may_fail or failures[name, result["error"]] > _REPEATS:
                done[name] = result
        if len(done) < len(names):
            time.sleep(_PAUSE_S)
    return list(done.values())


def _wanted(run: Running, names: Sequence[str], step: Step) -> dict[str, Any]:
    """Return which tables a driver tiers, under a new attempt of the plan's lease, as a task of Airflow does."""
    lease_id = f"torture/{run.database}"
    lease = run.world.client.acquire_lease(lease_id, _LEASE_MS, {}, allow_empty=True)
    return {
        "tables": [run.path(name) for name in names],
        "options": {**step.get("options", {}), "lease_id": lease_id, "attempt_token": lease.attempt_token},
    }


def _faulty_round(run: Running, names: list[str], step: Step, fault: Step) -> None:
    named = " ".join(str(fault[key]) for key in ("what", "when", "step", "method") if key in fault)
    run.tally.counts[f"faults: {named}"] += 1
    marker = run.world.folder / f"marker-{next(_MARKERS)}"
    driver = run.world.driver
    planned = {**fault, "marker": str(marker)} if "step" in fault else None
    try:
        with calls_met(run.world, fault) as target:
            driver.begin("tier", server=target, fault=planned, **_wanted(run, names, step))
            meet(run.world, fault, marker)
            driver.end()
    except (DriverDiedError, CommandFailedError):
        driver.kill()
    if run.world.lake.throttling is not None:
        run.tally.counts["requests that S3 has refused"] = run.world.lake.throttling.refused


def class_of(error: str) -> str:
    """Return what failures of one cause have in common."""
    words = [
        word for word in error.split() if not any(character.isdigit() or character in "'\"`/" for character in word)
    ]
    return " ".join(words[:12])
