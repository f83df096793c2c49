"""Wait for the rounds of an application that outlived its task.

If the process of a submit task is killed, its application may go on. The server knows: the rounds of the attempt are in
Tiering for as long as their driver sends heartbeats. The next try waits for them, since a second application would end
them and read everything again.

The wait cannot hang. The server ends a round that sends no heartbeat for `heartbeat_timeout`, and one that runs for too
long. A driver of this machine whose process has ended is not waited for at all.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from airflow_provider_fluss.outage_timer import OutageTimer
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import OUTCOMES, LeaseOutcome, TieringRound, TieringState

if TYPE_CHECKING:
    import logging

    from airflow.sdk.types import Logger

_POLL_SECONDS: Final = 2.0
_QUIET_LOOKS: Final = 3
"""After so many looks without a running round nothing is waited for. Between two rounds of a driver there is a gap."""
_UNAVAILABLE_SECONDS: Final = 300.0
"""For how long an unavailable server is waited for."""
_DRIVER: Final = re.compile(r" on (?P<host>\S+), process (?P<process>\d+)$")
"""How the tiering application names itself to the server."""


def wait_for_living_rounds(
    ask: Callable[[], LeaseOutcome],
    is_stopped: Callable[[], bool],
    log: Logger | logging.Logger,
    poll_seconds: float = _POLL_SECONDS,
) -> tuple[LeaseOutcome, frozenset[TablePath]]:
    """Return once no living driver runs a round of the attempt.

    Args:
        ask: Asks the server for the outcome of the attempt.
        is_stopped: Whether the wait is over for another reason.
        log: The logger for what is waited for.
        poll_seconds: The time in seconds between two looks.

    Returns:
        The newest outcome, and the tables whose rounds were waited for.

    Raises:
        FlussTieringError: The server refused to answer, or was unavailable for too long.
    """
    outcome = ask()
    outage = OutageTimer(_UNAVAILABLE_SECONDS)
    waited_for = frozenset[TablePath]()
    quiet = _QUIET_LOOKS  # a first try waits for nothing
    while not is_stopped() and outcome.cancelled_reason is None:
        living = [each for each in outcome.rounds if _lives(each)]
        quiet = 0 if living else quiet + 1
        if quiet >= _QUIET_LOOKS:
            break
        for each in living:
            if each.path not in waited_for:
                log.info(
                    "Table %s is being tiered (epoch %d) by %s, which outlived an earlier try: waiting for its round",
                    each.path,
                    each.tiering_epoch,
                    each.driver,
                )
        waited_for |= {each.path for each in living}
        time.sleep(poll_seconds)
        try:
            outcome = ask()
            outage.restore(log)
        except FlussTieringError as error:
            if outage.lost(error, log) is not None:
                raise
    return outcome, waited_for


def settled(outcome: LeaseOutcome, waited_for: Collection[TablePath]) -> frozenset[TablePath]:
    """Return the tables that Spark need not tier: those that are Tiered, and those that failed while waited for."""
    return frozenset(
        each.path
        for each in outcome.rounds
        if each.state is TieringState.TIERED
        or (each.state is TieringState.FAILED and not each.interrupted and each.path in waited_for)
    )


def _lives(each: TieringRound) -> bool:
    """Return whether a round runs and its driver may live. The server says so, unless this machine knows better."""
    if each.state in OUTCOMES:
        return False
    named = _DRIVER.search(each.driver)
    if named is None or named["host"] != socket.gethostname():
        return True
    try:
        os.kill(int(named["process"]), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
