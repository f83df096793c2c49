"""Tiering of Apache Fluss tables into a lakehouse with Spark: server, client, application."""

__version__ = "0.1.0"
