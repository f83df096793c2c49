"""Airflow provider that tiers Apache Fluss tables into Apache Iceberg with Spark."""

from __future__ import annotations

__version__ = "0.1.0"
