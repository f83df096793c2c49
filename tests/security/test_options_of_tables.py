"""Options and credentials that are for an administrator or for those who tier, and not for all who read a table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from cases import cases
from engine_support import descriptor
from fluss_tiering.cli.main import app
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from token_support import TokenServer

ELSEWHERE = {
    "table.datalake.iceberg.uri": "https://elsewhere.example.com",
    "table.datalake.iceberg.warehouse": "/elsewhere",
    "table.datalake.iceberg.catalog-impl": "Elsewhere",
    "table.datalake.iceberg.header.X": "1",
    "iceberg.write.data.path": "/elsewhere",
    "iceberg.write.metadata.path": "/elsewhere",
    "iceberg.write.location-provider.impl": "Elsewhere",
}
HARMLESS = {"table.datalake.freshness": "1min", "iceberg.write.parquet.page-row-limit": "10000", "of.our.own": "x"}


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, TieringClient]]:
    roles = {"some": ["admin=shop.*", "reader"], "all": ["admin"]}
    with (
        TokenServer(tmp_path_factory.mktemp("server"), roles) as server,
        server.client("some") as some,
        server.client("all") as every,
    ):
        yield {"some": some, "all": every}


@cases("key", ELSEWHERE)
def test_an_administrator_of_some_tables_does_not_lead_drivers_elsewhere(
    clients: dict[str, TieringClient], key: str
) -> None:
    path, new = TablePath("shop", key.replace(".", "_")), TablePath("shop", "new")
    some, every = clients["some"], clients["all"]
    some.create_table(path, descriptor(properties=HARMLESS))
    calls = {
        "create": lambda: some.create_table(new, descriptor(properties={key: ELSEWHERE[key]})),
        "set": lambda: some.alter_table(path, {key: ELSEWHERE[key]}),
        "reset": lambda: some.alter_table(path, {}, [key]),
    }
    for what, make in calls.items():
        with pytest.raises(FlussTieringError, match=f"{key} of table .* takes the role admin for all tables") as error:
            make()
        assert error.value.code is ErrorCode.AUTHORIZATION, what
    (found,) = some.get_tables([path])
    assert key not in found.descriptor.properties
    assert new not in {each.path for each in every.list_tables()}
    assert key in every.create_table(new, descriptor(properties={key: ELSEWHERE[key]})).descriptor.properties
    every.drop_table(new)


def test_other_options_are_free(clients: dict[str, TieringClient]) -> None:
    path = TablePath("shop", "free")
    clients["some"].create_table(path, descriptor(properties=HARMLESS))
    clients["some"].alter_table(path, {"table.datalake.freshness": "2min", "of.our.own": "y"}, [])
    assert {**HARMLESS, "table.datalake.freshness": "2min", "of.our.own": "y"}.items() <= clients["some"].get_tables(
        [path]
    )[0].descriptor.properties.items()


SERVERS = "planted-secret-of-the-server"
TABLES = "planted-secret-of-the-table"
IN_URL = "planted-secret-in-a-url"
CATALOG = {
    "type": "rest",
    "uri": "https://lake.example.com",
    "s3.secret-access-key": SERVERS,
    "jdbc.url": f"postgresql://user:{IN_URL}@db.example.com/lake",
    "s3.endpoint": f"https://user:with/{IN_URL}@s3.example.com",
    "header.Cookie": f"session={SERVERS}",
    "rest.auth.basic.password": f"***;{SERVERS}",
}
PATH = TablePath("shop", "orders")
ROLES = {
    "reader": ["reader"],
    "writer": ["writer"],
    "tierer elsewhere": ["reader", "tierer=hr.*"],
    "tierer": ["tierer"],
    "tierer of the shop": ["tierer=shop.*"],
    "admin": ["admin"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    with TokenServer(tmp_path_factory.mktemp("server"), ROLES, lake_catalog=CATALOG) as running:
        with running.client("admin") as admin:
            properties = {
                "table.datalake.iceberg.credential": f"client:a, {TABLES}",
                "table.datalake.iceberg.scope": "shop",
                "password.of.our.own": f"a;{TABLES}",
            }
            admin.create_table(PATH, descriptor(properties=properties))
        yield running


@cases("role", ROLES)
def test_who_may_not_tier_a_table_gets_no_credentials(server: TokenServer, role: str) -> None:
    with server.client(role) as client:
        tables = [*client.get_tables([PATH]), *client.list_tables()]
    assert len(tables) == 2
    for table in tables:
        secrets = [each for each in (SERVERS, TABLES, IN_URL) if each in repr(table.lake_catalog_properties)]
        assert secrets == ([SERVERS, TABLES, IN_URL] if role in {"tierer", "tierer of the shop", "admin"} else [])
        assert (TABLES in repr(table.descriptor)) is bool(secrets)
        assert table.lake_catalog_properties["uri"] == "https://lake.example.com", "what is no secret stays"
        assert table.lake_catalog_properties["scope"] == "shop"
        if not secrets:
            assert table.lake_catalog_properties["s3.endpoint"] == "https://***@s3.example.com"


@pytest.mark.parametrize("role", ["reader", "tierer"])
def test_the_command_says_why_settings_are_hidden(
    server: TokenServer, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUSS_TIERING_TOKEN", server.tokens[role])
    printed = CliRunner().invoke(app, ["lake-conf", str(PATH), "--server", server.target])
    assert printed.exit_code == 0, printed.stderr
    assert (SERVERS in printed.stdout) == (role == "tierer")
    hidden = "warning: The server hides what may be secret, with *** in its place: credential, header.Cookie, "
    assert (hidden in printed.stderr) == (role == "reader"), printed.stderr
    assert ("***" in printed.stderr) == (role == "reader"), "a password that looks as if it were hidden"
