"""A process with a client may start other processes by fork and exec, as pyspark starts Spark's JVM."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_CODE = """
import json, signal, subprocess, sys
from fluss_tiering.client import TieringClient

ended = []
with TieringClient(sys.argv[1]) as client:
    for _ in range(150):
        client.list_tiering_statuses()
        # Without a function to call in the new process, subprocess would not fork.
        child = subprocess.Popen(["true"], stdin=subprocess.PIPE, preexec_fn=lambda: signal.alarm(0))
        child.communicate()
        ended.append(child.returncode)
print(json.dumps(ended))
"""


@pytest.mark.system
def test_what_is_started_beside_an_open_channel_does_not_abort(server) -> None:
    ran = subprocess.run([sys.executable, "-c", _CODE, server.target], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == [0] * 150
