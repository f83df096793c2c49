"""A process with a client may start other processes by fork and exec, as pyspark starts Spark's JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from waiting import WAIT_S

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


_FIRST_LOAD = """
import importlib, os, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            print(os.environ.get("GRPC_ENABLE_FORK_SUPPORT"))

sys.meta_path.insert(0, Finder())
importlib.import_module(sys.argv[1])
"""


@pytest.mark.system
@pytest.mark.parametrize(
    "module",
    ["fluss_tiering.cli.main", "fluss_tiering.cli.health", "fluss_tiering.client", "fluss_tiering.spark.application"],
)
def test_grpc_is_loaded_without_its_own_handling_of_forks(module: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    ran = subprocess.run(
        [sys.executable, "-c", _FIRST_LOAD, module], capture_output=True, text=True, check=True, env=environment
    )
    assert ran.stdout.split() == ["false"]


@pytest.mark.system
def test_what_is_started_beside_an_open_channel_does_not_abort(server) -> None:
    ran = subprocess.run([sys.executable, "-c", _CODE, server.target], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == [0] * 150


_FORKED = """
import os, sys
from fluss_tiering.client import AsyncTieringClient, TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

def refused(call):
    try:
        call()
    except FlussTieringError as error:
        assert error.code is ErrorCode.INVALID_REQUEST, error
        assert "forked from process" in error.message, error
    else:
        raise AssertionError("the call went on")

client = TieringClient(sys.argv[1])
if sys.argv[2] == "used":
    client.list_tables()
child = os.fork()
if child == 0:
    refused(client.list_tables)
    refused(lambda: next(iter(client.watch_tiering_statuses())))
    refused(lambda: TieringClient(sys.argv[1]))
    refused(lambda: AsyncTieringClient(sys.argv[1]))
    client.close()
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert client.list_tables() is not None
client.close()
"""

_FORKED_BEFORE = """
import os, sys
from fluss_tiering.client import TieringClient

child = os.fork()
with TieringClient(sys.argv[1]) as client:
    client.list_tables()
if child == 0:
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
"""


@pytest.mark.system
@pytest.mark.parametrize(
    ("code", "arguments"),
    [(_FORKED, ["used"]), (_FORKED, ["unused"]), (_FORKED_BEFORE, [])],
    ids=["after a call", "after a client was made", "before the first client"],
)
def test_a_forked_process_is_refused_instead_of_waiting_for_ever(server, code: str, arguments: list[str]) -> None:
    subprocess.run([sys.executable, "-c", code, server.target, *arguments], check=True, timeout=WAIT_S)
