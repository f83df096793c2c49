"""Options by which an administrator of some tables would decide what the drivers of others do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from cases import cases
from engine_support import ServerThread, descriptor
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.server.edge.callers.tokens import StaticToken, TokenFile

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
    file, texts = TokenFile(tmp_path_factory.mktemp("tokens") / "tokens.json"), {}
    for pattern in ("shop.*", "*"):
        grants = [Grant.parse("admin", pattern), Grant.parse("reader")]
        token, texts[pattern] = StaticToken.create("admin", grants, datetime.now(UTC), None)
        file.add(token)
    with (
        ServerThread(tmp_path_factory.mktemp("server"), tokens_file=file.path) as server,
        TieringClient(server.target, security=ClientSecurity(token=texts["shop.*"])) as some,
        TieringClient(server.target, security=ClientSecurity(token=texts["*"])) as every,
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
