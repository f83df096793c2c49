"""Looking for secrets where nobody may find them: in texts, files and processes, and on the pages of Spark."""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from waiting import WAIT_S

PAGES = ("", "jobs/", "stages/", "environment/", "executors/", "SQL/", "api/v1/applications")


class Secrets:
    """What nobody may find. Each method fails if one of them is found."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets

    def require_none(self, where: str, *texts: object) -> None:
        for text in texts:
            found = [each for each in self._secrets if each in (text if isinstance(text, str) else repr(text))]
            assert not found, f"{found} in {where}"

    def require_none_in_files(self, folder: Path, *, but: Path | None = None) -> set[str]:
        """Look at all files but one, and return the names of those that were looked at."""
        files = [each for each in folder.rglob("*") if each.is_file() and each != but]
        for file in files:
            self.require_none(str(file), file.read_bytes().decode("latin-1"))
        return {each.name for each in files}

    def require_none_in_processes(self, processes: Iterable[psutil.Process]) -> list[str]:
        """Look at command lines and environments, and return the names of the processes with their command lines."""
        names = []
        for each in processes:
            # A worker may end while it is looked at.
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                line = " ".join(each.cmdline())
                self.require_none(f"the command line {line}", line)
                self.require_none(f"the environment of {line}", str(each.environ()))
                names.append(f"{each.name()} {line}")
        return names

    def require_none_on_page(self, ui_port: int, page: str) -> None:
        """Look at a page of the user interface of Spark on this machine."""
        with urllib.request.urlopen(f"http://127.0.0.1:{ui_port}/{page}", timeout=WAIT_S) as answer:
            self.require_none(f"Spark's page {page}", answer.read().decode())


def traced_spark(events: Path, ui_port: int) -> dict[str, str]:
    """Return settings of Spark with which it shows and logs as much as it can."""
    return {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(ui_port),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{events}",
        # Otherwise nothing is found in it.
        "spark.eventLog.compress": "false",
    }
