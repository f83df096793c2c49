"""Iceberg's REST catalog server, with its tables in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from examples.ports import free_ports
from fetch_test_servers import ICEBERG_REST
from java_servers import RunningServer


class RestCatalog(RunningServer):
    """A REST catalog that keeps its tables in a JDBC catalog on SQLite; `with` starts and ends it.

    Args:
        folder: The folder for its files.
        warehouse: The location of the tables; None for a folder in `folder`.
        properties: Properties of the catalog that the server itself opens.
        vends: Whether it vends keys for an object store that are among them.
        jars: Jars that it needs for these properties.
    """

    def __init__(
        self,
        folder: Path,
        *,
        warehouse: str | None = None,
        properties: Mapping[str, str] | None = None,
        vends: bool = False,
        jars: Sequence[Path] = (),
    ) -> None:
        (port,) = free_ports(1)
        self.warehouse = warehouse or f"file:{folder / 'warehouse'}"
        opened = {
            "uri": f"jdbc:sqlite:{folder}/catalog.db",
            "warehouse": self.warehouse,
            **(properties or {}),
        }
        super().__init__(
            ICEBERG_REST,
            folder,
            port,
            environment={
                "CATALOG_REST_PORT": str(port),
                # As the server spells properties in its environment.
                **{f"CATALOG_{key.replace('-', '__').replace('.', '_').upper()}": each for key, each in opened.items()},
                **({"CATALOG_INCLUDE__CREDENTIALS": "true"} if vends else {}),
            },
            jars=jars,
        )

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the catalog, without a name."""
        return {"type": "rest", "uri": f"http://127.0.0.1:{self.port}", "warehouse": self.warehouse}
