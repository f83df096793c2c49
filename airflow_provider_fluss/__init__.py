"""Airflow provider that tiers Apache Fluss tables into Apache Iceberg with Spark."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.1.0"
