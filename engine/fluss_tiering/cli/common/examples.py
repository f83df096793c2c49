"""Examples in the help of the commands that people use most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

EXAMPLES: Final[Mapping[str, Sequence[str]]] = {
    "serve": (
        "fluss-tiering serve --data-dir ~/fluss-tiering-data",
        "fluss-tiering serve --fluss coordinator:9123",
    ),
    "tables create": (
        "fluss-tiering tables create shop.orders --like orders.csv \\",
        "    --primary-key order_id --column 'amount DECIMAL(10, 2)'",
        "fluss-tiering tables create shop.clicks -c 'at TIMESTAMP' -c 'url STRING'",
    ),
    "tables alter": ("fluss-tiering tables alter shop.orders --set table.datalake.freshness=10min",),
    "put": (
        "fluss-tiering put shop.orders orders.csv",
        "fluss-tiering put shop.orders --delete cancelled.csv",
    ),
    "scan": (
        "fluss-tiering scan shop.orders --limit 10",
        "fluss-tiering scan shop.orders --format csv > orders.csv",
    ),
    "status": (
        "fluss-tiering status",
        "fluss-tiering status --failing",
        "fluss-tiering status shop.orders --server tiering.example.com:9133",
    ),
    "history": (
        "fluss-tiering history shop.orders",
        "fluss-tiering history shop.orders --all --limit 100",
    ),
    "resume": ("fluss-tiering resume shop.orders", "fluss-tiering resume --parked"),
    "tier": (
        "fluss-tiering tier shop.orders",
        "fluss-tiering tier --pending --master spark://spark.example.com:7077",
        "fluss-tiering tier shop.orders --print-submit",
    ),
    "verify": ("fluss-tiering verify shop.orders",),
    "maintain": ("fluss-tiering maintain shop.orders",),
    "compact": ("fluss-tiering compact shop.orders",),
    "expire": ("fluss-tiering expire shop.orders --older-than 7d",),
    "clean": ("fluss-tiering clean shop.orders", "fluss-tiering clean shop.orders --delete"),
    "lake-conf": (
        "spark-sql $(fluss-tiering lake-conf shop.orders)",
        "fluss-tiering lake-conf shop.orders --for duckdb",
    ),
    "token create": ("fluss-tiering token create anna --role 'tierer=shop.*' --file tokens.json",),
}
"""The lines of each example, by the names of the command."""


def of(command_path: str) -> Sequence[str]:
    """Return the examples of a command, such as `fluss-tiering tables create`; none if it has none."""
    return EXAMPLES.get(command_path.partition(" ")[2], ())
