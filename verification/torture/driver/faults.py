"""Faults at the steps of a round: the driver's processes are killed, or stopped until the run lets them go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from fluss_tiering.client import TieringClient
from fluss_tiering.lake.iceberg.table import IcebergTable

STEPS: Final[dict[str, tuple[Any, str]]] = {
    "prepare": (TieringClient, "prepare_lake_snapshot"),
    "lake": (IcebergTable, "commit"),
    "register": (TieringClient, "commit_lake_snapshot"),
}
SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Faults:
    """The one fault that the next round meets."""

    def __init__(self) -> None:
        self._next: dict[str, str] | None = None
        for step, (owner, name) in STEPS.items():
            setattr(owner, name, self._wrapped(step, getattr(owner, name)))

    def plan(self, fault: dict[str, str] | None) -> None:
        """Let a fault happen at its step: `what`, `when`, `step`, and `marker`, a file that is made before."""
        self._next = fault

    def _wrapped(self, step: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **others: Any) -> Any:
            self._meet("before", step)
            result = original(*arguments, **others)
            self._meet("after", step)
            return result

        return wrapped

    def _meet(self, when: str, step: str) -> None:
        fault = self._next
        if fault is None or (fault["when"], fault["step"]) != (when, step):
            return
        self._next = None
        Path(fault["marker"]).touch()
        os.killpg(0, SIGNALS[fault["what"]])
