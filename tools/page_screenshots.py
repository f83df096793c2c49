"""Take the pictures of the page "Lake tiering" that the documentation shows.

It starts a tiering server and Airflow's API server, plays an application that tiers some tables, and takes pictures of
Airflow in a real browser.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import httpx
from page_tables import CONFLICT, MISSING, Tables

from chromium import Chromium
from examples.flights.airflow_processes import AirflowProcesses
from examples.flights.processes import Processes
from examples.flights.server import start_server
from examples.ports import free_ports
from fluss_tiering.client import TieringClient

IMAGES = Path(__file__).parent.parent / "docs" / "images"
FRAME = "document.querySelector('iframe')?.contentDocument"


def main() -> int:
    """Write the pictures into the folder of the documentation, or into the one that is given."""
    images = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    with tempfile.TemporaryDirectory(prefix="page-screenshots-") as name:
        folder = Path(name)
        processes = Processes(folder)
        (port,) = free_ports(1)
        try:
            target = start_server(processes, folder / "data", port)
            with TieringClient(target) as client:
                make_tables(Tables(client))
            airflow = AirflowProcesses(
                processes,
                folder / "airflow",
                dag_folders={},
                connections={"fluss_default": {"conn_type": "fluss", "host": "127.0.0.1", "port": port}},
            )
            airflow.start(components=())
            token = httpx.get(f"{airflow.url}/auth/token").raise_for_status().json()["access_token"]
            with Chromium(folder / "chromium", width=1440, height=860) as browser:
                browser.log_in(airflow.url, token)
                take(browser, airflow.url, images)
        finally:
            processes.stop()
    return 0


def make_tables(tables: Tables) -> None:
    """Make tables in all statuses."""
    orders = tables.create("shop.orders", freshness="3min", rows=5_000)
    for number in range(34):
        tables.tier(orders, 240_000 if number == 0 else 70_000 + number * 7_919 % 61_000, seconds=0.1 + number % 5 / 9)
        if number in {11, 20}:
            tables.fail(orders, CONFLICT, seconds=0.2)
    for name, rows in (("customers", 12_000), ("carts", 88_000), ("products", 1_900), ("prices", 41_000)):
        path = tables.create(f"shop.{name}", rows=100)
        tables.tier(path, rows)
        tables.tier(path, rows // 9)
    tables.park(tables.create("web.clicks", rows=2_400))
    for name in ("page_views", "sessions"):
        tables.create(f"web.{name}", freshness="1s", rows=700)
    for name in ("invoices", "payments", "ledger"):
        tables.tier(tables.create(f"finance.{name}", rows=30), 5_000)
    tables.claim(tables.create("finance.bookings", rows=900))
    refunds = tables.create("finance.refunds", rows=12)
    for _ in range(6):
        tables.fail(refunds, CONFLICT)
    # It waits for a next try, as its table says whose retry is due.
    payouts = tables.create("finance.payouts", freshness="1s", rows=410)
    for _ in range(2):
        tables.fail(payouts, MISSING)
    tables.claim(payouts)


def take(browser: Chromium, url: str, images: Path) -> None:
    """Take all pictures."""
    for theme in ("light", "dark"):
        browser.prefer(theme)
        browser.open(f"{url}/plugin/lake-tiering")
        # The script of the page shows it once it has written the times.
        browser.wait_for(f"{FRAME}?.querySelector('.refresh:not([hidden])')")
        browser.screenshot(images / f"lake-tiering-{theme}.png")
    browser.prefer("light")
    for table, image in (("shop.orders", "lake-tiering-table.png"), ("web.clicks", "lake-tiering-failing.png")):
        browser.open(f"{url}/plugin/lake-tiering/lake-tiering/table?table={table}")
        browser.wait_for(f"{FRAME}?.querySelector('.refresh:not([hidden])')")
        browser.screenshot(images / image)


if __name__ == "__main__":
    sys.exit(main())
