"""Spark's worker daemon with the planted defect of the run, if there is one."""

from __future__ import annotations

import os

from fluss_tiering.spark import worker_daemon

if __name__ == "__main__":
    if os.environ.get("TORTURE_DEFECT"):
        from torture.defects import DEFECTS

        DEFECTS[os.environ["TORTURE_DEFECT"]].switch_on()
    worker_daemon.main()
