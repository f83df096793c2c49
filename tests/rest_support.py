"""Iceberg's REST catalog server, with its tables in a folder."""

from __future__ import annotations

from pathlib import Path

from examples.ports import free_ports
from fetch_test_servers import ICEBERG_REST
from java_servers import RunningServer


class RestCatalog(RunningServer):
    """A REST catalog that keeps its tables in a JDBC catalog on SQLite; `with` starts and ends it."""

    def __init__(self, folder: Path) -> None:
        (port,) = free_ports(1)
        self.warehouse = folder / "warehouse"
        super().__init__(
            ICEBERG_REST,
            folder,
            port,
            environment={
                "CATALOG_REST_PORT": str(port),
                "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
                "CATALOG_WAREHOUSE": f"file:{self.warehouse}",
            },
        )

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the catalog, without a name."""
        return {"type": "rest", "uri": f"http://127.0.0.1:{self.port}", "warehouse": f"file:{self.warehouse}"}
