"""The server in a sandbox, as a container or a unit of systemd gives it: what it may write to, and as whom it runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from engine_support import ServerProcess, new_table, put
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TableBucket, TableInfo
from needs import needs

NOBODY = 65534
PROGRAM = Path(sys.executable).with_name("fluss-tiering")
FILTER = Path(__file__).with_name("filtered_calls.py")
UNIT = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "fluss-tiering.service"


def sandbox(writable: Path) -> list[str]:
    """A command before another one, which then may write to one folder only and has no rights, not even root's."""
    folder = shlex.quote(str(writable))
    # Mounts of its own: the folder as a mount that stays writable, and everything else read-only.
    mounts = [f"mount --bind {folder} {folder}", *opened(Path(sys.base_prefix)), "mount -o remount,bind,ro /"]
    user = (
        f"setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups --no-new-privs --bounding-set -all --inh-caps -all"
    )
    # setpriv itself still starts a program with root's rights to files. env does not.
    script = " && ".join([*mounts, f'exec {user} env -- "$@"'])
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sandbox"]


def opened(python: Path) -> list[str]:
    """The commands that let other users reach an installation of Python in a closed folder, such as root's home."""
    closed = next((each for each in reversed(python.parents) if not each.stat().st_mode & 0o001), None)
    if closed is None:
        return []
    held, at, hidden = "/run/python-of-tests", shlex.quote(str(python)), shlex.quote(str(closed))
    return [
        f"mount -t tmpfs -o mode=755 tmpfs /run && mkdir {held} && mount --bind {at} {held}",
        f"mount -t tmpfs -o mode=755 tmpfs {hidden} && mkdir -p {at} && mount --bind {held} {at}",
        f"mount -o remount,bind,ro {hidden} && mount -o remount,bind,ro /run",
    ]


def why_not() -> str | None:
    """Why there can be no sandbox here, or None."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))):
        return "a sandbox of another user needs root, unshare and setpriv"
    with TemporaryDirectory() as folder:
        tried = subprocess.run(
            [*sandbox(Path(folder)), PROGRAM, "--version"], capture_output=True, text=True, check=False
        )
    return None if tried.returncode == 0 else f"this machine allows no sandbox: {tried.stderr.strip()}"


@pytest.fixture
@needs("system", "server")
def folder() -> Iterator[Path]:
    """A folder of the other user. Those of pytest are closed to other users."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with TemporaryDirectory(prefix="sandbox-of-tests-") as name:
        os.chown(name, NOBODY, NOBODY)
        yield Path(name)


def allowed_calls() -> set[str]:
    """The system calls that the unit of systemd allows."""
    # systemd allows these always.
    allowed = calls_of("@default")
    for line in re.findall(r"^SystemCallFilter=(.+)$", UNIT.read_text(), re.MULTILINE):
        named = {call for each in line.removeprefix("~").split() for call in calls_of(each)}
        allowed = allowed - named if line.startswith("~") else allowed | named
    return allowed


def calls_of(name: str) -> set[str]:
    """The system calls of a set, such as @system-service, as systemd knows it."""
    if not name.startswith("@"):
        return {name}
    told = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    _, *lines = told.stdout.splitlines()
    return {call for line in lines if line.strip()[:1] not in ("", "#") for call in calls_of(line.strip())}


@pytest.fixture
def filter_of_calls() -> list[str]:
    """A command before another one, which then may make the system calls only that the unit of systemd allows."""
    if find_library("seccomp") is None or shutil.which("systemd-analyze") is None:
        pytest.skip("filtering system calls needs libseccomp and systemd-analyze")
    return [sys.executable, str(FILTER), ",".join(sorted(allowed_calls()))]


@pytest.fixture(params=["as in a container", "as a unit of systemd"])
def server(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> ServerProcess:
    more = request.getfixturevalue("filter_of_calls") if "systemd" in request.param else []
    for name in ("cache", "logs", "temporary"):
        (folder / name).mkdir()
        shutil.chown(folder / name, NOBODY)
    return ServerProcess(
        tmp_path / "log",
        data_dir=folder / "data",
        program=[*sandbox(folder), *more, str(PROGRAM)],
        # The home of the user who runs the tests has caches that others do not have.
        HOME="/nonexistent",
        TMPDIR=str(folder / "temporary"),
        NUMBA_CACHE_DIR=str(folder / "cache"),
        FLUSS_TIERING_AUDIT_LOG=str(folder / "logs" / "audit.jsonl"),
    )


def status_of(server: ServerProcess) -> dict[str, str]:
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_the_sandbox_lets_nobody_write_elsewhere(folder: Path) -> None:
    for elsewhere in ("/tmp", "/var/tmp", "/etc"):
        tried = subprocess.run(
            [*sandbox(folder), "touch", f"{elsewhere}/x"], capture_output=True, text=True, check=False
        )
        assert tried.returncode != 0, elsewhere
    subprocess.run([*sandbox(folder), "touch", f"{folder}/x"], check=True)


def rows(client: TieringClient, table: TableInfo) -> int:
    with client.scan(table) as scan:
        return sum(batch.num_rows for batch in scan)


@pytest.mark.sampled(1)
def test_a_server_needs_no_rights_and_writes_to_its_own_folders_only(server: ServerProcess, folder: Path) -> None:
    server.start()
    status = status_of(server)
    assert {*status["Uid"].split(), *status["Gid"].split()} == {str(NOBODY)}
    assert {status[each] for each in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    with TieringClient(server.target) as client:
        table, log = new_table(client, [1, 2, 3]), new_table(client, [1, 2], primary_key=False)
        ((snapshot,),) = client.take_kv_snapshots([table.path]).values()
        put(client, table, {4: "after the snapshot"})
        assert b"".join(client.fetch_kv_snapshot(snapshot.bucket, snapshot.snapshot_id, None, None))
        assert b"".join(client.fetch_log(TableBucket(log.table_id, 0), 0, 2))
        assert rows(client, table) == 4
    assert server.stop() == 0
    server.start()
    with TieringClient(server.target) as client:
        assert rows(client, table) == 4
    assert server.stop() == 0
    assert "Read-only file system" not in server.log_file.read_text()
    assert sorted(each.name for each in folder.iterdir()) == ["cache", "data", "logs", "temporary"]
    assert "CreateTable" in (folder / "logs" / "audit.jsonl").read_text()
    assert not list((folder / "temporary").iterdir())
